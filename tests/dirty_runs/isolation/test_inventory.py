"""The inventory against the catalogue: whoever can write is in it, and nobody else."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tests.dirty_runs.isolation import writers
from tests.dirty_runs.isolation.conftest import World

from pgflow_migrate.dirty_runs.inventory import INVENTORY, Kind, Writer

_TESTS = Path(__file__).parents[1]
_FUNCTIONS: tuple[Kind, ...] = ("entry point", "helper", "v2 entry", "v2 internal")


def names(*kinds: Kind) -> set[str]:
    """Names of the entries of these kinds."""
    return {writer.name for writer in INVENTORY if writer.kind in kinds}


def test_functions_that_can_write_are_those_of_the_inventory(demo_world: World) -> None:
    assert writers.functions(demo_world.session) == names(*_FUNCTIONS)


def test_triggers_and_actions_of_foreign_keys_are_those_of_the_inventory(demo_world: World) -> None:
    assert writers.triggers(demo_world.session) == names("trigger")


def test_cron_jobs_are_those_of_the_inventory(demo_world: World) -> None:
    assert writers.cron_jobs(demo_world.session) == names("cron")


def test_shipped_helpers_are_those_of_the_inventory() -> None:
    assert writers.shipped_helpers() == names("shipped helper")


def test_names_are_unique_and_nothing_is_left_open() -> None:
    assert len({writer.name for writer in INVENTORY}) == len(INVENTORY)
    assert [w.name for w in INVENTORY if not (w.writes and w.guard and w.test)] == []


@pytest.mark.parametrize("writer", INVENTORY, ids=lambda writer: writer.name)
def test_the_named_test_exists(writer: Writer) -> None:
    file, _, function = writer.test.partition("::")
    tree = ast.parse((_TESTS / file).read_text(encoding="utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize(
    "create",
    [
        # by itself
        "function pgflow.newcomer(uuid) returns void language sql as"
        " $$ update pgflow.step_tasks set status = 'queued' where run_id = $1 $$",
        "function pgflow.newcomer(uuid) returns void language sql as $$ DELETE  FROM\n ONLY pgflow.runs $$",
        "function pgflow.newcomer(uuid) returns void begin atomic delete from pgflow.deps; end",
        "function pgflow.newcomer(uuid) returns void language plpgsql set search_path = pgflow as"
        " $$ begin with gone as (delete from step_tasks returning 1) select; end $$",
        # by PGMQ
        "function pgflow.newcomer(uuid) returns void language sql as $$ select pgmq.archive('demo', 1) $$",
        "function pgflow.newcomer(uuid) returns void language sql as"
        " $$ select \"pgmq\" . read('demo', 1, 1) $$",
        # by one that is called
        "function pgflow.newcomer(uuid) returns void language sql as"
        " $$ select pgflow.start_ready_steps($1) $$",
        "function pgflow.newcomer(uuid) returns void language plpgsql set search_path = pgflow as"
        ' $$ begin perform "start_ready_steps" ($1); end $$',
        # by a text that is put together
        "function pgflow.newcomer(uuid) returns void language plpgsql as"
        " $$ begin execute format('up%s pgflow.runs set input = null', 'date'); end $$",
        "procedure pgflow.newcomer(uuid) language plpgsql as $$ begin /* */ execute 'select 1'; end $$",
        # from another schema
        "function public.newcomer(uuid) returns void language sql as $$ delete from pgflow.runs $$",
    ],
)
def test_a_function_that_writes_and_is_not_in_the_inventory_is_found(demo_world: World, create: str) -> None:
    before = writers.functions(demo_world.session)
    demo_world.session.execute(f"create {create}")
    # A function of schema public is printed without it.
    assert writers.functions(demo_world.session) - before == {"newcomer(uuid)"}


def test_a_merge_is_a_write() -> None:
    # PostgreSQL 14 has none.
    assert writers.writes_by_itself("sql", "merge into pgflow.runs using v on true when matched then delete")


def test_whoever_calls_the_caller_of_a_writer_is_found(demo_world: World) -> None:
    before = writers.functions(demo_world.session)
    for name, called in (
        ("first", "pgflow.maybe_complete_run"),
        ("second", "pgflow.first"),
        ("third", "pgflow.second"),
    ):
        demo_world.session.execute(
            f"create function pgflow.{name}(uuid) returns void language sql as $$ select {called}($1) $$"
        )
    assert writers.functions(demo_world.session) - before == {"first(uuid)", "second(uuid)", "third(uuid)"}


def test_an_entry_that_is_gone_or_writes_no_more_is_found(demo_world: World) -> None:
    session = demo_world.session
    before = writers.functions(session)
    session.execute("drop function pgflow.mark_worker_stopped(uuid)")
    session.execute(
        "create or replace function pgflow.resume_worker_function(function_name text) returns boolean"
        " language sql as 'select false'"
    )
    assert before - writers.functions(session) == {
        "mark_worker_stopped(uuid)",
        "resume_worker_function(text)",
    }


@pytest.mark.parametrize(
    "body",
    [
        "select r.run_id::text from pgflow.runs r for update",
        "select r.run_id::text from pgflow.runs r for no key update of r skip locked",
        "select 'delete from pgflow.runs'::text -- update pgflow.runs\n /* insert into pgflow.runs */",
        "select pgflow.is_local()::text",
        "select 'by complete_task()'::text",
    ],
)
def test_a_function_that_reads_or_locks_is_not_taken_for_a_writer(demo_world: World, body: str) -> None:
    before = writers.functions(demo_world.session)
    demo_world.session.execute(
        f"create function pgflow.newcomer() returns text language sql as $f$ {body} $f$"
    )
    assert writers.functions(demo_world.session) == before


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (
            "create trigger newcomer after insert on pgflow.runs"
            " for each row execute function pgflow._v2_require_work()",
            "newcomer on runs",
        ),
        ("create rule newcomer as on delete to pgflow.deps do instead nothing", "newcomer on deps"),
        (
            "create trigger newcomer after insert on pgmq.q_demo"
            " for each row execute function pgflow._v2_require_work()",
            "newcomer on q_demo",
        ),
        (
            "alter table pgflow.run_work add constraint newcomer foreign key (run_id)"
            " references pgflow.runs on delete cascade",
            "newcomer on run_work",
        ),
    ],
)
def test_a_new_trigger_rule_or_cascade_is_found(demo_world: World, change: str, name: str) -> None:
    before = writers.triggers(demo_world.session)
    demo_world.session.execute(change)
    assert writers.triggers(demo_world.session) - before == {name}


def test_a_new_cron_job_is_found(demo_world: World) -> None:
    before = writers.cron_jobs(demo_world.session)
    demo_world.session.execute(
        "select cron.schedule('newcomer', '* * * * *', 'select pgflow.ensure_workers()')"
    )
    assert writers.cron_jobs(demo_world.session) - before == {"newcomer"}
