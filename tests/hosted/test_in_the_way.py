"""What cannot survive is named before anything starts, by the audit and by the script."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.upgrade.run import upgrade

Session = psycopg.Connection[Any]
Refuse = Callable[[str], list[tuple[str, tuple[str, ...]]]]

START_UP = "pgflow.ensure_flow_compiled(text, jsonb)"

ALL = {
    """
    create view public.compiled as select pgflow.ensure_flow_compiled('a', '{}'::jsonb) as result;
    create table public.log (result jsonb default pgflow.ensure_flow_compiled('a', '{}'::jsonb));
    create function public.compile() returns jsonb language sql
      begin atomic select pgflow.ensure_flow_compiled('a', '{}'::jsonb); end;
    create policy twice on public.log using (pgflow.ensure_flow_compiled('a', '{}'::jsonb) is not null)
      with check (pgflow.ensure_flow_compiled('b', '{}'::jsonb) is not null);
    """: (
        f"default value for column result of table public.log, which calls {START_UP}, is in the way",
        f"function public.compile(), which calls {START_UP}, is in the way",
        f"policy twice on table public.log, which calls {START_UP}, is in the way",
        f"rule _RETURN on view public.compiled, which calls {START_UP}, is in the way",
    ),
    """
    create domain public.a_task as pgflow.step_tasks;
    create table public.in_domain (kept public.a_task);
    create type public.pair as (first pgflow.steps, tasks pgflow.step_tasks[]);
    create table public.in_composite (kept public.pair[]);
    create view public.rows as select s as step from pgflow.steps s;
    create table public.in_view (kept public.rows);
    create table public.unchanged (kept pgflow.flows);
    """: (
        "column public.in_composite.kept of type pgflow.step_tasks is in the way",
        "column public.in_composite.kept of type pgflow.steps is in the way",
        "column public.in_domain.kept of type pgflow.step_tasks is in the way",
        "column public.in_view.kept of type pgflow.steps is in the way",
    ),
    """
    create table public.archived () inherits (pgflow.step_tasks);
    create table public.whole (like pgflow.worker_functions including defaults)
      partition by list (start_mode);
    alter table public.whole attach partition pgflow.worker_functions default;
    """: (
        "table public.archived, which inherits from pgflow.step_tasks, is in the way",
        "table public.whole, whose partition pgflow.worker_functions is, is in the way",
    ),
    """
    create procedure pgflow.claim_tasks() language sql as 'select';
    create aggregate pgflow._free_messages(integer) (sfunc = int4pl, stype = integer);
    create view pgflow.flows_slug_case_insensitive_key as select 1;
    create sequence pgflow.step_tasks_queue_message_key;
    alter table pgflow.worker_functions add constraint pause_has_a_reason check (true);
    """: (
        "constraint pause_has_a_reason on pgflow.worker_functions is in the way",
        "function pgflow._free_messages(integer) is in the way",
        "function pgflow.claim_tasks() is in the way",
        "relation pgflow.flows_slug_case_insensitive_key is in the way",
        "relation pgflow.step_tasks_queue_message_key is in the way",
    ),
}


@pytest.mark.parametrize("arrange", ALL, ids=["dependents", "row types", "inheritance", "names"])
def test_what_is_in_the_way_is_named(
    arrange: str, old: str, refuse_it: Refuse, reach: Callable[[str], Session]
) -> None:
    reach(old).execute(arrange.encode())
    assert refuse_it(old) == [("release-unexpected", ALL[arrange])]


def test_what_is_not_in_the_way_is_let_through(old: str, reach: Callable[[str], Session]) -> None:
    session = reach(old)
    session.execute(
        """
        create table public.base (flow_slug text not null);
        alter table pgflow.steps inherit public.base;
        create table public.whole (id integer) partition by list (id);
        create table public.part partition of public.whole default;
        create type public.pair as (first text, second pgflow.flows);
        create table public.pairs (kept public.pair, more public.pair[]);
        create table public.steps (id integer);
        create function public.mine() returns setof public.steps language sql as 'select * from public.steps';
        """
    )
    report = run_audit(old)
    assert (report.blocking, report.of("warning")) == ((), ())
    assert upgrade(old).revision == HEAD


def test_an_extension_that_has_the_start_up_call_is_named(
    old: str, refuse_it: Refuse, reach: Callable[[str], Session]
) -> None:
    session = reach(old)
    session.execute(f"alter extension pg_cron add function {START_UP}".encode())
    assert refuse_it(old) == [
        ("release-unexpected", (f"extension pg_cron, which has {START_UP}, is in the way",))
    ]


def test_after_what_the_hint_says_the_upgrade_goes_through(old: str, reach: Callable[[str], Session]) -> None:
    session = reach(old)
    for arrange in ALL:
        session.execute(arrange.encode())
    (blocking,) = run_audit(old).blocking
    assert (blocking.count, len(blocking.samples)) == (15, 15)
    assert "Rename or drop them (and make them again afterwards)" in blocking.hint
    session.execute(
        """
        drop view public.compiled;
        drop function public.compile;
        alter table public.log alter column result drop default;
        drop policy twice on public.log;
        drop table public.in_domain, public.in_composite, public.in_view, public.archived;
        alter table public.whole detach partition pgflow.worker_functions;
        alter procedure pgflow.claim_tasks rename to my_claim_tasks;
        alter aggregate pgflow._free_messages(integer) rename to sum_of_messages;
        alter view pgflow.flows_slug_case_insensitive_key rename to mine;
        drop sequence pgflow.step_tasks_queue_message_key;
        alter table pgflow.worker_functions rename constraint pause_has_a_reason to mine;
        """
    )
    assert run_audit(old).blocking == ()
    assert upgrade(old).revision == HEAD
    session.execute(
        """
        create view public.compiled as
          select pgflow.ensure_flow_compiled('a', '{}'::jsonb, '{"queueIdentity": true}'::jsonb) as result;
        """
    )
    assert session.execute("select kept from public.unchanged").fetchall() == []


def test_one_function_is_warned_of(old: str, reach: Callable[[str], Session]) -> None:
    reach(old).execute(
        "create function public.mine(pgflow.steps[]) returns integer language sql as 'select 1'"
    )
    ((code, count, samples),) = [
        (f.code, f.count, f.samples) for f in run_audit(old).findings if f.severity == "warning"
    ]
    assert (code, count, samples) == ("row-type-in-function", 1, ("public.mine(pgflow.steps[])",))


def test_a_function_that_lists_the_columns_of_a_row_is_warned_of_and_fails_as_said(
    old: str, reach: Callable[[str], Session]
) -> None:
    session = reach(old)
    columns = session.execute(
        "select string_agg(attname, ', ' order by attnum) from pg_attribute"
        " where attrelid = 'pgflow.step_tasks'::regclass and attnum > 0"
    ).fetchall()[0][0]
    select = f"select {columns} from pgflow.step_tasks"
    session.execute(
        f"""
        create function public.listed() returns setof pgflow.step_tasks language sql as '{select}';
        create function public.returned() returns setof pgflow.step_tasks language plpgsql
          as 'begin return query {select}; end';
        create function public.parsed() returns setof pgflow.step_tasks language sql
          begin atomic select * from pgflow.step_tasks; end;
        create function public.all_of() returns setof pgflow.step_tasks language sql
          as 'select * from pgflow.step_tasks';
        """.encode()
    )
    (finding,) = [f for f in run_audit(old).findings if f.severity == "warning"]
    assert (finding.code, finding.samples) == (
        "row-type-in-function",
        ("public.all_of()", "public.listed()", "public.parsed()", "public.returned()"),
    )
    upgrade(old)
    fresh = reach(old)
    assert fresh.execute("select queue_name from public.all_of()").fetchall() == [("order_flow",)]
    for name, state in (("listed", "42P13"), ("parsed", "42P13"), ("returned", "42804")):
        with pytest.raises(psycopg.Error) as failed:
            fresh.execute(f"select * from public.{name}()".encode())
        assert failed.value.sqlstate == state
