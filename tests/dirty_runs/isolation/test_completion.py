"""maybe_complete_run(): from started to completed, of protocol 1 alone."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import psycopg
import pytest
from tests.dirty_runs.isolation.conftest import World
from tests.dirty_runs.protocol import Session

FAIL = "update pgflow.runs set status = 'failed', failed_at = %s, remaining_steps = 0 where run_id = %s"
FAILED_AT = ["2100-01-01", None]


def plain_run(session: Session) -> UUID:
    """A run of protocol 1 of a flow with one step."""
    session.execute("select pgflow.create_flow('single')")
    session.execute("select pgflow.add_step('single', 'only')")
    run: UUID = session.value("select run_id from pgflow.start_flow('single', '{}')")
    return run


@pytest.mark.parametrize("failed_at", FAILED_AT)
def test_a_failed_run_is_never_completed(demo_world: World, failed_at: str | None) -> None:
    session = demo_world.session
    run = plain_run(session)
    session.execute(FAIL, failed_at, run)
    with demo_world.unchanged():
        session.execute("select pgflow.maybe_complete_run(%s)", run)


def test_before_this_revision_it_was_or_its_caller_failed(database_at: Callable[[str], str]) -> None:
    session = Session(database_at("queue_identity"))
    try:
        run = plain_run(session)
        session.execute(FAIL, FAILED_AT[0], run)
        with pytest.raises(psycopg.errors.CheckViolation, match="completed_at_or_failed_at"):
            session.execute("select pgflow.maybe_complete_run(%s)", run)
        session.execute(FAIL, FAILED_AT[1], run)
        session.execute("select pgflow.maybe_complete_run(%s)", run)
        assert session.run(run)["status"] == "completed"
    finally:
        session.close()


@pytest.mark.parametrize(("remaining", "status"), [(0, "completed"), (1, "started")])
def test_a_started_run_is_completed_with_its_last_step(
    demo_world: World, remaining: int, status: str
) -> None:
    session = demo_world.session
    run = plain_run(session)
    session.execute("update pgflow.runs set remaining_steps = %s where run_id = %s", remaining, run)
    session.execute("select pgflow.maybe_complete_run(%s)", run)
    assert session.value("select status from pgflow.runs where run_id = %s", run) == status


def test_ordinary_completion_is_as_before(demo_world: World) -> None:
    session = demo_world.session
    run = plain_run(session)
    session.execute(
        "select pgflow.start_tasks('single', array(select message_id from pgflow.step_tasks"
        " where run_id = %s), null)",
        run,
    )
    session.execute("select pgflow.complete_task(%s, 'only', 0, '[1]')", run)
    found = session.row("select * from pgflow.runs where run_id = %s", run)
    assert (found["status"], found["remaining_steps"], found["output"]) == ("completed", 0, {"only": [1]})
    with demo_world.unchanged():
        session.execute("select pgflow.maybe_complete_run(%s)", run)


def test_a_run_of_protocol_2_is_not_completed_by_protocol_1(world: World) -> None:
    session = world.session
    # Also when its counter says that it could be.
    session.execute(
        "update pgflow.runs set remaining_steps = 0 where run_id in (select run_id from pgflow.run_work)"
    )
    with world.unchanged():
        for run in world.runs.values():
            session.execute("select pgflow.maybe_complete_run(%s)", run)
