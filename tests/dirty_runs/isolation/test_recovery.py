"""Recovery of protocol 1 and tasks of protocol 2 that it would call stalled."""

from __future__ import annotations

from psycopg.errors import Diagnostic
from tests.dirty_runs.isolation.conftest import World


def test_a_task_of_protocol_2_does_not_stall(world: World) -> None:
    session = world.session
    # By the clock three tasks are stalled: of a held run, of one in attention, of protocol 1.
    session.execute(
        "update pgflow.step_tasks set queued_at = queued_at - interval '1 day',"
        " started_at = started_at - interval '1 day' where status = 'started'"
    )
    held = [task for task in world.tasks() if task["status"] == "started"]
    assert len(held) == 2
    before = session.everything()
    assert session.value("select pgflow.requeue_stalled_tasks()") == 1
    after = session.everything()
    changed = {table for table in before if before[table] != after[table]}
    assert changed == {"pgflow.step_tasks", "pgmq.q_plain"}
    assert [task for task in world.tasks() if task["status"] == "started"] == held
    (requeued,) = session.rows("select run_id from pgflow.step_tasks where requeued_count = 1")
    assert requeued["run_id"] == world.plain["started"]
    with world.unchanged():
        assert session.value("select pgflow.requeue_stalled_tasks()") == 0


def test_a_missing_queue_of_protocol_2_is_not_warned_of_by_it(demo_world: World) -> None:
    session = demo_world.session
    session.execute(
        "update pgflow.step_tasks set queued_at = queued_at - interval '1 day',"
        " started_at = started_at - interval '1 day' where status = 'started'"
    )
    session.execute("drop table pgmq.q_demo")
    notices: list[str | None] = []

    def note(notice: Diagnostic) -> None:
        notices.append(notice.message_primary)

    session.connection.add_notice_handler(note)
    try:
        assert session.value("select pgflow.requeue_stalled_tasks()") == 1
    finally:
        session.connection.remove_notice_handler(note)
    assert notices == []


def test_the_cron_job_is_that_recovery(demo_world: World) -> None:
    assert demo_world.values(
        "select command from cron.job where jobname = 'pgflow_requeue_stalled_tasks'"
    ) == ["select pgflow.requeue_stalled_tasks()"]
