"""Runs that were there before the revision: they stay as they are, of protocol 1, and end as ever."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from tests.dirty_runs.changes import unchanged
from tests.dirty_runs.protocol import Session

from pgflow_migrate import resources
from pgflow_migrate.replay import scenario
from pgflow_migrate.replay.work import work_off
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.session import AMONG_WORKERS
from pgflow_migrate.verify.run import verify

TABLES = ("runs", "step_states", "step_tasks")


def rows(session: Session) -> dict[str, list[str]]:
    """Of the tables of runs, every value."""
    return {
        table: [
            row["row"]
            for row in session.rows(f"select to_jsonb(t)::text as row from pgflow.{table} t order by 1")
        ]
        for table in TABLES
    }


def without_pointers(found: dict[str, list[str]]) -> dict[str, list[str]]:
    """The new column of tasks taken out; it is empty."""
    pointer = '"current_claim_id": null, '
    assert all(pointer in row for row in found["step_tasks"])
    return found | {"step_tasks": [row.replace(pointer, "") for row in found["step_tasks"]]}


def test_runs_of_before_stay_of_protocol_1_without_work_rows(database_at: Callable[[str], str]) -> None:
    scenarios = {one.name: one for one in scenario.load_all(resources.fixtures(), ["queue_identity"])}
    session = Session(database_at("queue_identity"))
    try:
        session.execute(scenarios["every_status"].populate)
        session.execute("discard all")
        before = rows(session)
        upgrade(session.dsn, fence=AMONG_WORKERS)
        after = rows(session)
        assert len(before["runs"]) == 6
        assert sorted(without_pointers(after)["step_tasks"]) == sorted(before["step_tasks"])
        assert {table: after[table] for table in TABLES[:2]} == {table: before[table] for table in TABLES[:2]}
        for table in ("run_work", "task_claims"):
            assert session.value(f"select count(*) from pgflow.{table}") == 0
        with unchanged(session):
            for row in session.rows("select run_id from pgflow.runs"):
                run: UUID = row["run_id"]
                assert session.reconcile(run) == {"outcome": "wrong_protocol", "protocol_version": 1}
                assert session.request(run) == {"outcome": "wrong_protocol", "protocol_version": 1}
            assert session.reconcile() == {"outcome": "idle", "busy": 0}
        assert work_off(session.connection, "orders") > 0
        assert verify(session.dsn).violations == ()
        # A run that is started anew by protocol 1 needs no work row, either.
        session.value("select run_id from pgflow.start_flow('orders', '{}')")
        assert session.value("select count(*) from pgflow.run_work") == 0
    finally:
        session.close()
