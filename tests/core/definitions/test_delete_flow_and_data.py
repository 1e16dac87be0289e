"""``pgflow.delete_flow_and_data(p_flow_slug)``: everything of one flow goes, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

Connection = psycopg.Connection[dict[str, Any]]
State = dict[str, list[dict[str, Any]]]

DELETED_IN_ORDER = ["step_tasks", "step_states", "runs", "deps", "steps", "flows"]


def populate(db: Connection, flow: str) -> None:
    """A flow with a dependency, an active run with a claimed task, and an archived message."""
    db.execute("select pgflow.create_flow(%s)", (flow,))
    db.execute("select pgflow.add_step(%s, 'a')", (flow,))
    db.execute("select pgflow.add_step(%s, 'b', array['a'])", (flow,))
    for _ in range(2):
        db.execute("select pgflow.start_flow(%s, '{}')", (flow,))
    db.execute(
        "select pgflow.start_tasks(%s, array_agg(message_id), null) from pgflow.step_tasks"
        " where flow_slug = %s",
        (flow, flow),
    )
    db.execute(
        "select pgflow.complete_task(run_id, step_slug, task_index, '1') from pgflow.step_tasks"
        " where flow_slug = %s and step_slug = 'a' limit 1",
        (flow,),
    )


def test_deletes_the_definition_the_runs_and_the_queue_and_leaves_the_rest(
    db: Connection, state_of: Callable[[Connection], State], value: Callable[..., Any]
) -> None:
    populate(db, "kept")
    before = state_of(db)
    populate(db, "gone")
    sent = value("select count(*) from realtime.messages")
    assert value("select count(*) from pgmq.a_gone") == 1
    assert value("select count(*) from pgmq.q_gone") == 2

    db.execute("select pgflow.delete_flow_and_data('gone')")

    after = state_of(db)
    assert len(after.pop("realtime.messages")) == sent  # it sends no event
    assert after == {table: found for table, found in before.items() if table != "realtime.messages"}
    assert value("select to_regclass('pgmq.q_gone') is null and to_regclass('pgmq.a_gone') is null")
    assert value("select queue_name from pgmq.list_queues()") == "kept"


def test_returns_nothing(db: Connection, value: Callable[..., Any]) -> None:
    populate(db, "gone")
    assert value("select pg_typeof(pgflow.delete_flow_and_data('gone'))::text") == "void"


def test_drops_the_queue_first_and_deletes_in_the_order_of_the_references(
    db: Connection, rows: Callable[..., list[dict[str, Any]]]
) -> None:
    populate(db, "gone")
    db.execute("create table public.deletions (id int generated always as identity, name text, queue text)")
    db.execute(
        """
        create function public.record_deletion() returns trigger language plpgsql as $$
        begin
          insert into public.deletions (name, queue) values (tg_table_name, to_regclass('pgmq.q_gone')::text);
          return null;
        end
        $$
        """
    )
    for table in DELETED_IN_ORDER:
        db.execute(
            f"create trigger record after delete on pgflow.{table}"
            " for each statement execute function public.record_deletion()"
        )
    db.execute("select pgflow.delete_flow_and_data('gone')")
    assert rows("select name, queue from public.deletions order by id") == [
        {"name": table, "queue": None} for table in DELETED_IN_ORDER
    ]


def test_workers_and_worker_functions_are_kept(db: Connection, rows: Callable[..., list[Any]]) -> None:
    populate(db, "gone")
    db.execute("select pgflow.track_worker_function('gone')")
    db.execute(
        "insert into pgflow.workers (worker_id, queue_name, function_name)"
        " values (gen_random_uuid(), 'gone', 'gone')"
    )
    db.execute("select pgflow.delete_flow_and_data('gone')")
    assert len(rows("select from pgflow.workers")) == 1
    assert len(rows("select from pgflow.worker_functions")) == 1


def test_takes_no_advisory_lock_of_two_keys(db: Connection, rows: Callable[..., list[Any]]) -> None:
    populate(db, "gone")
    db.execute("select pgflow.delete_flow_and_data('gone')")
    # PGMQ's own advisory lock has one key (objsubid 1).
    assert not rows(
        "select from pg_locks where pid = pg_backend_pid() and locktype = 'advisory' and objsubid = 2"
    )


def test_a_flow_can_be_created_again_and_its_queue_starts_anew(
    db: Connection, value: Callable[..., Any]
) -> None:
    populate(db, "gone")
    db.execute("select pgflow.delete_flow_and_data('gone')")
    populate(db, "gone")
    assert value("select min(message_id) from pgflow.step_tasks") == 1


def test_for_an_unknown_flow_the_outcome_is_that_of_pgmq(
    db: Connection, state_of: Callable[[Connection], State]
) -> None:
    populate(db, "kept")
    before = state_of(db)

    def sqlstate(call: str) -> str | None:
        try:
            with db.transaction():
                db.execute(f"select {call}")
        except psycopg.Error as error:
            return error.sqlstate
        return None

    # PGMQ 1.5.1 as an extension raises 42P01; as plain SQL, and since 1.6.0, it says true or false.
    assert sqlstate("pgflow.delete_flow_and_data('ghost')") == sqlstate("pgmq.drop_queue('ghost')")
    assert state_of(db) == before


def test_a_failure_keeps_everything(db: Connection, refused: Callable[..., psycopg.Error]) -> None:
    populate(db, "gone")
    db.execute("create table public.notes (flow_slug text references pgflow.flows)")
    db.execute("insert into public.notes values ('gone')")
    error = refused("select pgflow.delete_flow_and_data('gone')")
    assert (error.sqlstate, error.diag.constraint_name) == ("23503", "notes_flow_slug_fkey")


def test_the_older_helper_of_the_same_name_cannot_be_replaced_in_place(
    refused: Callable[..., psycopg.Error],
) -> None:
    error = refused(
        "create or replace function pgflow.delete_flow_and_data(flow_slug text) returns void"
        " language sql as 'select'"
    )
    assert error.sqlstate == "42P13"
    assert error.diag.message_primary == 'cannot change name of input parameter "p_flow_slug"'
