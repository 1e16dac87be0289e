"""A signature sees every kind of change, and names it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgflow_migrate import database
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.differences import differences, history_differences
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

Connection = psycopg.Connection[Any]

SETUP = """
select pgflow.create_flow('Orders');
select pgflow.add_step('Orders', 'load');
select pgflow.start_flow('Orders', '{}', '00000000-0000-4000-8000-000000000001');
create table public.notes (note text);
insert into public.notes values ('a secret'), (null);
create function public.twice(n int) returns int language sql as 'select n * 2';
create view public.shown as select 1 as one;
create type public.colour as enum ('red');
"""


@pytest.fixture(scope="module")
def populated(server: Server, templates: Templates) -> Iterator[Connection]:
    """One database for this module: each test rolls its changes back."""
    with database.connect(templates.clone("core_0_16_0", "signature"), autocommit=True) as connection:
        connection.execute(SETUP.encode())
        yield connection
    server.drop_database("signature")


@contextlib.contextmanager
def rolled_back(connection: Connection) -> Iterator[Connection]:
    with connection.transaction(force_rollback=True):
        yield connection


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            "select pgmq.send('Orders', '{}')",
            ["table pgmq.q_orders gained 1 rows (msg_id 2)", "sequence pgmq.q_orders_msg_id_seq changed"],
        ),
        (
            "select pgmq.read('Orders', 30, 1)",
            ["table pgmq.q_orders changed read_ct, last_read_at, vt, (row version) in 1 rows (msg_id 1)"],
        ),
        (
            "update pgmq.q_orders set vt = vt",
            ["table pgmq.q_orders changed (row version) in 1 rows (msg_id 1)"],
        ),
        ("delete from pgmq.q_orders", ["table pgmq.q_orders lost 1 rows (msg_id 1)"]),
        (
            "update pgmq.q_orders set message = 'null'",
            ["table pgmq.q_orders changed message, (row version) in 1 rows (msg_id 1)"],
        ),
        (
            "alter sequence pgmq.q_orders_msg_id_seq restart with 9007199254740993",
            [
                "sequence pgmq.q_orders_msg_id_seq: relation changed",
                "sequence pgmq.q_orders_msg_id_seq changed",
            ],
        ),
        ("update pgmq.meta set created_at = now() + interval '1 day'", ["table pgmq.meta"]),
        (
            "update pgflow.step_tasks set status = 'started'",
            [
                "table pgflow.step_tasks changed status, (row version) "
                "in 1 rows (run_id/step_slug/task_index 00000000-0000-4000-8000-000000000001/load/0)"
            ],
        ),
        (
            "update public.notes set note = 'x' where note is null",
            ["table public.notes lost 1 rows", "table public.notes gained 1 rows"],
        ),
        (
            "create index on pgflow.runs (input)",
            [
                "index pgflow.runs_input_idx: definition is new",
                "index pgflow.runs_input_idx: relation is new",
            ],
        ),
        (
            "drop index pgmq.q_orders_vt_idx",
            [
                "index pgmq.q_orders_vt_idx: definition is gone",
                "index pgmq.q_orders_vt_idx: relation is gone",
            ],
        ),
        (
            "alter table pgflow.flows add column note text",
            ["table pgflow.flows: column 6 note is new", "table pgflow.flows gained column note"],
        ),
        (
            "alter table pgflow.runs alter column remaining_steps drop default",
            ["table pgflow.runs: column 6 remaining_steps changed"],
        ),
        (
            "alter table pgflow.runs drop constraint status_is_valid",
            ["table pgflow.runs: constraint status_is_valid is gone"],
        ),
        ("grant select on pgflow.runs to public", ["table pgflow.runs: relation changed"]),
        ("grant usage on schema pgflow to public", ["schema pgflow: owner and privileges changed"]),
        ("comment on table pgflow.runs is 'hello'", ["table pgflow.runs: comment 0 changed"]),
        ("alter table pgflow.runs enable row level security", ["table pgflow.runs: relation changed"]),
        ("create policy p on pgflow.runs using (true)", ["table pgflow.runs: policy p is new"]),
        (
            "create or replace function public.twice(n int) returns int language sql as 'select n + n'",
            ["function public.twice(n integer): definition changed"],
        ),
        (
            "revoke execute on function public.twice(int) from public",
            ["function public.twice(n integer): owner and privileges changed"],
        ),
        (
            "create or replace view public.shown as select 2 as one",
            ["view public.shown: rule _RETURN changed"],
        ),
        (
            "create trigger t before update on pgflow.runs for each row execute function "
            "suppress_redundant_updates_trigger()",
            ["table pgflow.runs: trigger t is new"],
        ),
        ("alter type public.colour add value 'blue'", ["type public.colour: type changed"]),
        (
            "alter default privileges in schema pgflow grant select on tables to public",
            ["default privileges: "],
        ),
        ("select cron.schedule('mine', '* * * * *', 'select 1')", ["table cron.job"]),
        ("create schema left_over", ["schema left_over: exists is new"]),
        (
            "select pgmq.drop_queue('Orders')",
            [
                "table pgmq.q_orders is gone",
                "table pgmq.a_orders is gone",
                "sequence pgmq.q_orders_msg_id_seq is gone",
            ],
        ),
    ],
)
def test_a_change_is_seen_and_named(populated: Connection, change: str, expected: list[str]) -> None:
    with rolled_back(populated) as connection:
        before = signature.take(connection)
        assert differences(before, signature.take(connection)) == ()
        connection.execute(change.encode())
        found = differences(before, signature.take(connection))
    for text in expected:
        assert any(sentence.startswith(text) for sentence in found), found
    assert "secret" not in repr(found)


def test_a_new_row_without_a_key_counts_as_gained(populated: Connection) -> None:
    with rolled_back(populated) as connection:
        before = signature.take(connection)
        connection.execute("insert into public.notes values ('a secret')")
        assert differences(before, signature.take(connection)) == ("table public.notes gained 1 rows",)


def test_null_and_json_null_are_different(populated: Connection) -> None:
    with rolled_back(populated) as connection:
        connection.execute("update pgflow.runs set output = null")
        before = signature.take(connection)
        connection.execute("update pgflow.runs set output = 'null'")
        (found,) = differences(before, signature.take(connection))
    assert found.startswith("table pgflow.runs changed output, (row version) in 1 rows")


def test_a_rolled_back_change_leaves_no_trace(populated: Connection) -> None:
    before = signature.take(populated)
    with rolled_back(populated) as connection:
        connection.execute("alter table pgflow.step_tasks add column x int default random()")
        connection.execute("update pgmq.q_orders set vt = now()")
    assert differences(before, signature.take(populated)) == ()


def test_a_rewritten_table_is_seen(populated: Connection) -> None:
    before = signature.take(populated)
    populated.execute("vacuum full pgflow.flows")
    assert "table pgflow.flows: relation changed" in differences(before, signature.take(populated))


UPGRADED = """
alter table pgflow.steps add column queue_name text not null default 'orders';
alter table pgflow.step_tasks
  add column queue_name text not null default 'orders', add column current_claim_id uuid;
create index step_tasks_queue on pgflow.step_tasks (queue_name);
"""


@pytest.mark.parametrize(
    ("also", "changes", "expected"),
    [
        ("", (), []),
        ("create table pgflow.more (x int); insert into pgflow.more values (1)", (), []),
        (
            "create or replace function pgflow.poll_for_tasks_2() returns int language sql as 'select 1'",
            (),
            [],
        ),
        ("update pgflow.step_tasks set status = 'cancelled'", ("pgflow.step_tasks.status",), []),
        (
            "update pgflow.step_tasks set status = 'cancelled'",
            (),
            ["table pgflow.step_tasks changed status in 1 rows"],
        ),
        ("", ("pgflow.step_tasks.status",), ["column pgflow.step_tasks.status should change and did not"]),
        ("", ("pgflow.nope.status",), ["column pgflow.nope.status should change but is not there"]),
        (
            "alter table pgflow.steps add column more int",
            (),
            ["table pgflow.steps gained ['more', 'queue_name']"],
        ),
        ("delete from pgflow.step_tasks", (), ["table pgflow.step_tasks lost 1 rows"]),
        (
            "alter table pgflow.runs add column more int",
            (),
            ["table pgflow.runs gained ['more'] instead of []"],
        ),
        ("alter table pgflow.runs drop column output", (), ["table pgflow.runs lost column output"]),
        ("update pgmq.q_orders set vt = vt", (), ["table pgmq.q_orders changed (row version) in 1 rows"]),
        ("alter table pgmq.q_orders add column more int", (), ["table pgmq.q_orders: column 8 more is new"]),
        ("select nextval('pgmq.q_orders_msg_id_seq')", (), ["sequence pgmq.q_orders_msg_id_seq changed"]),
        ("create table public.left_over (x int)", (), ["table public.left_over is new"]),
        ("update public.notes set note = 'x'", (), ["table public.notes lost 2 rows"]),
        ("create index on pgmq.meta (created_at)", (), ["index pgmq.meta_created_at_idx: definition is new"]),
    ],
)
def test_an_upgrade_may_add_its_columns_and_nothing_else(
    populated: Connection, also: str, changes: tuple[str, ...], expected: list[str]
) -> None:
    with rolled_back(populated) as connection:
        before = signature.take(connection)
        connection.execute(UPGRADED.encode())
        connection.execute(also.encode())
        found = history_differences(before, signature.take(connection), changes)
    for text in expected:
        assert any(sentence.startswith(text) for sentence in found), found
    assert bool(found) == bool(expected), found


def test_from_queue_identity_no_row_of_pgflow_may_be_rewritten(populated: Connection) -> None:
    with rolled_back(populated) as connection:
        connection.execute("alter table pgflow.steps add column queue_name text")
        connection.execute("alter table pgflow.step_tasks add column queue_name text")
        before = signature.take(connection)
        connection.execute("alter table pgflow.step_tasks add column current_claim_id uuid")
        assert history_differences(before, signature.take(connection)) == ()
        connection.execute("update pgflow.step_tasks set status = status")
        (told,) = history_differences(before, signature.take(connection))
        assert told.startswith("table pgflow.step_tasks changed (row version) in 1 rows")


def test_missing_columns_are_a_difference(populated: Connection) -> None:
    with rolled_back(populated) as connection:
        before = signature.take(connection)
        assert history_differences(before, before) == (
            "table pgflow.steps gained [] instead of ['queue_name']",
            "table pgflow.step_tasks gained [] instead of ['current_claim_id', 'queue_name']",
        )
