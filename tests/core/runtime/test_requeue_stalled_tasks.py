"""requeue_stalled_tasks: what counts as stalled, three chances, and the end of patience."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core


def claimed(core: Core, flow: str = "plain", *, timeout: int = 5, step_timeout: int | None = None) -> UUID:
    """A run whose only step has been claimed."""
    core.flow(flow, timeout=timeout)
    core.step(flow, "first", timeout=step_timeout)
    run = core.start(flow, {})
    core.claim(run, "first")
    return run


def stalled_map(core: Core, requeued_counts: list[int]) -> UUID:
    """A claimed and stalled map; each task has been requeued so many times already."""
    core.flow("mapped", timeout=5)
    core.map_step("mapped", "each")
    run = core.start("mapped", list(range(len(requeued_counts))))
    core.start_tasks("mapped", core.read("mapped", vt=500))
    for index, count in enumerate(requeued_counts):
        core.execute(
            "update pgflow.step_tasks set requeued_count = %s, started_at = now() - interval '1 hour',"
            " queued_at = now() - interval '2 hours' where run_id = %s and task_index = %s",
            count,
            run,
            index,
        )
    return run


@pytest.mark.parametrize(
    ("seconds", "count"), [(0, 0), (34, 0), (35, 0), (35.000001, 1), (36, 1), (100000, 1)]
)
def test_a_task_is_stalled_strictly_after_its_timeout_and_thirty_seconds(
    core: Core, seconds: float, count: int
) -> None:
    run = claimed(core, timeout=5)
    core.age(run, "first", seconds)
    before = core.everything("plain")
    assert core.requeue() == count
    assert core.task(run, "first")["status"] == ("queued" if count else "started")
    if count == 0:
        assert core.everything("plain") == before


@pytest.mark.parametrize(
    ("flow_timeout", "step_timeout", "seconds", "count"),
    [(5, 100, 36, 0), (5, 100, 130, 0), (5, 100, 131, 1), (100, 5, 36, 1), (100, 5, 35, 0), (5, None, 36, 1)],
)
def test_the_timeout_is_that_of_the_step_where_it_has_one(
    hardened: Core, flow_timeout: int, step_timeout: int | None, seconds: int, count: int
) -> None:
    run = claimed(hardened, timeout=flow_timeout, step_timeout=step_timeout)
    hardened.age(run, "first", seconds)
    assert hardened.requeue() == count


def test_each_task_is_measured_by_its_own_step(hardened: Core) -> None:
    hardened.flow("timed", timeout=1000)
    hardened.step("timed", "quick", timeout=5)
    hardened.step("timed", "slow", timeout=100)
    run = hardened.start("timed", {})
    for slug in ("quick", "slow"):
        hardened.claim(run, slug)
        hardened.age(run, slug, 36)
    assert hardened.requeue() == 1
    assert hardened.tasks(run) == {"quick/0": "queued", "slow/0": "started"}


@pytest.mark.parametrize(
    ("flow_timeout", "step_timeout", "seconds", "count"),
    [(5, 100, 35, 0), (5, 100, 36, 1), (100, 5, 36, 0), (100, 5, 131, 1)],
)
def test_at_0_15_0_the_timeout_is_that_of_the_flow(
    unhardened: Core, flow_timeout: int, step_timeout: int, seconds: int, count: int
) -> None:
    run = claimed(unhardened, timeout=flow_timeout, step_timeout=step_timeout)
    unhardened.age(run, "first", seconds)
    assert unhardened.requeue() == count


ENDED_PARENTS = [
    "update pgflow.runs set status = 'failed', failed_at = now()",
    "update pgflow.runs set status = 'completed', completed_at = now()",
    "update pgflow.step_states set status = 'skipped', skip_reason = 'x', skipped_at = now(),"
    " remaining_tasks = null",
    "update pgflow.step_states set status = 'failed', failed_at = now()",
    "update pgflow.step_states set status = 'completed', completed_at = now(), remaining_tasks = 0",
]
ENDED = ["failed run", "completed run", "skipped step", "failed step", "completed step"]


@pytest.mark.parametrize("end", ENDED_PARENTS, ids=ENDED)
@pytest.mark.parametrize("requeued_count", [0, 3])
def test_tasks_of_ended_runs_and_steps_are_left_alone(hardened: Core, end: str, requeued_count: int) -> None:
    run = claimed(hardened)
    hardened.age(run, "first", 1000)
    hardened.execute("update pgflow.step_tasks set requeued_count = %s", requeued_count)
    hardened.execute(end)
    before = hardened.everything("plain")
    assert hardened.requeue() == 0
    assert hardened.everything("plain") == before


@pytest.mark.parametrize("end", ENDED_PARENTS, ids=ENDED)
def test_at_0_15_0_tasks_of_ended_runs_and_steps_are_revived(unhardened: Core, end: str) -> None:
    run = claimed(unhardened)
    unhardened.age(run, "first", 1000)
    unhardened.execute(end)
    assert unhardened.requeue() == 1
    assert unhardened.task(run, "first")["status"] == "queued"


@pytest.mark.parametrize("status", ["queued", "completed", "failed"])
def test_only_started_tasks_can_stall(core: Core, status: str) -> None:
    run = claimed(core)
    core.age(run, "first", 1000)
    core.execute("update pgflow.step_tasks set status = %s where run_id = %s", status, run)
    before = core.everything("plain")
    assert core.requeue() == 0
    assert core.everything("plain") == before


def test_a_stalled_task_is_queued_again(core: Core) -> None:
    run = claimed(core)
    core.execute("update pgflow.step_tasks set error_message = 'earlier' where run_id = %s", run)
    core.age(run, "first", 1000)
    before = core.task(run, "first"), core.state(run, "first"), core.run(run), core.events(run)
    assert core.requeue() == 1
    assert core.task(run, "first") == before[0] | {
        "status": "queued",
        "started_at": None,
        "last_worker_id": None,
        "requeued_count": 1,
        "last_requeued_at": core.value("select now()"),
    }
    assert core.task(run, "first")["attempts_count"] == 1
    assert (core.state(run, "first"), core.run(run), core.events(run)) == before[1:]


def test_the_message_of_a_requeued_task_is_visible_at_once(core: Core) -> None:
    run = claimed(core)
    core.age(run, "first", 1000)
    with core.visible_in(run, "first", 0):
        assert core.requeue() == 1
    assert core.read("plain") == core.messages(run, "first")


def test_each_flow_has_the_messages_of_its_own_queue_shown(core: Core) -> None:
    left, right = claimed(core, "left"), claimed(core, "right", timeout=50)
    idle = claimed(core, "idle", timeout=5000)
    hidden = core.message(idle, "first")
    for run in (left, right, idle):
        core.age(run, "first", 1000)
    with core.visible_in(left, "first", 0), core.visible_in(right, "first", 0):
        assert core.requeue() == 2
    assert core.task(idle, "first")["status"] == "started"
    assert core.message(idle, "first") == hidden


def test_three_requeues_are_allowed_and_the_fourth_stall_is_final(core: Core) -> None:
    run = claimed(core)
    for number in (1, 2, 3):
        core.age(run, "first", 1000)
        assert core.requeue() == 1
        assert core.task(run, "first")["requeued_count"] == number
        assert len(core.claim(run, "first")) == 1
    assert core.task(run, "first")["attempts_count"] == 4
    core.age(run, "first", 1000)
    before = core.task(run, "first"), core.state(run, "first"), core.run(run), core.events(run)
    assert core.requeue() == 0
    assert core.task(run, "first") == before[0] | {"permanently_stalled_at": core.value("select now()")}
    assert (core.state(run, "first"), core.run(run), core.events(run)) == before[1:]


def test_a_permanently_stalled_task_is_never_looked_at_again(core: Core) -> None:
    run = claimed(core)
    core.age(run, "first", 1000)
    core.execute("update pgflow.step_tasks set requeued_count = 3 where run_id = %s", run)
    assert core.requeue() == 0
    before = core.everything("plain")
    assert core.requeue() == 0
    assert core.everything("plain") == before


@pytest.mark.parametrize("count", [1, 200])
def test_a_call_that_requeues_nothing_leaves_the_messages_of_finally_stalled_tasks_in_the_queue(
    old_core: Core, count: int
) -> None:
    """The archiving is written down, but not executed when there is nothing to requeue."""
    run = stalled_map(old_core, [3] * count)
    before = old_core.everything("mapped")
    assert old_core.requeue() == 0
    stalled = "select count(*) from pgflow.step_tasks where permanently_stalled_at = now()"
    assert old_core.value(stalled) == count
    after = old_core.everything("mapped")
    for table in ('"pgmq"."q_mapped"', '"pgmq"."a_mapped"'):
        assert after[table] == before[table]
    assert old_core.queued("mapped") == old_core.messages(run, "each")
    assert old_core.read("mapped") == []


def test_queue_identity_archives_them_even_when_nothing_is_requeued(routed: Core) -> None:
    run = stalled_map(routed, [3, 3])
    assert routed.requeue() == 0
    assert routed.queued("mapped") == []
    assert routed.archived("mapped") == routed.messages(run, "each")


def test_a_call_that_requeues_something_archives_them(core: Core) -> None:
    run = stalled_map(core, [3, 2, 3, 0])
    assert core.requeue() == 2
    messages = core.messages(run, "each")
    assert core.tasks(run) == {
        "each/0": "started",
        "each/1": "queued",
        "each/2": "started",
        "each/3": "queued",
    }
    assert core.archived("mapped") == [messages[0], messages[2]]
    assert core.queued("mapped") == core.read("mapped") == [messages[1], messages[3]]


def test_a_requeue_in_one_flow_archives_the_stalled_messages_of_another(core: Core) -> None:
    final = stalled_map(core, [3])
    fresh = claimed(core)
    core.age(fresh, "first", 1000)
    assert core.requeue() == 1
    assert core.archived("mapped") == core.messages(final, "each")
    assert core.queued("plain") == core.messages(fresh, "first")


def test_tasks_without_a_message_are_requeued_and_marked_without_queue_calls(core: Core) -> None:
    run = stalled_map(core, [0, 3])
    core.execute("update pgflow.step_tasks set message_id = null where run_id = %s", run)
    core.execute("select pgmq.drop_queue('mapped')")
    assert core.requeue() == 1
    assert core.tasks(run) == {"each/0": "queued", "each/1": "started"}
    assert core.task(run, "each", 1)["permanently_stalled_at"] == core.value("select now()")


def test_one_missing_queue_aborts_the_recovery_of_all(old_core: Core) -> None:
    left, right = claimed(old_core, "left"), claimed(old_core, "right")
    for run in (left, right):
        old_core.age(run, "first", 1000)
    old_core.execute("select pgmq.drop_queue('right')")
    before = old_core.everything("left")
    with old_core.error() as caught:
        old_core.requeue()
    assert caught.value.sqlstate == "42P01"
    assert old_core.everything("left") == before


@pytest.mark.parametrize(
    ("requeued_count", "lost"),
    [(0, "pgmq.q_right"), (3, "pgmq.q_right"), (3, "pgmq.a_right"), (3, "pgmq.q_right, pgmq.a_right")],
)
def test_queue_identity_passes_over_the_tasks_of_a_missing_queue(
    routed: Core, requeued_count: int, lost: str
) -> None:
    left, right = claimed(routed, "left"), claimed(routed, "right")
    for run in (left, right):
        routed.age(run, "first", 1000)
    routed.execute(
        "update pgflow.step_tasks set requeued_count = %s where run_id = %s", requeued_count, right
    )
    routed.execute(f"drop table {lost}")
    before = routed.task(right, "first")
    assert routed.requeue() == 1
    assert routed.task(left, "first")["status"] == "queued"
    assert routed.task(right, "first") == before


def test_they_are_recovered_as_soon_as_the_queue_is_back(routed: Core) -> None:
    run = claimed(routed)
    routed.age(run, "first", 1000)
    routed.execute("alter table pgmq.q_plain rename to q_away")
    assert routed.requeue() == 0
    routed.execute("alter table pgmq.q_away rename to q_plain")
    assert routed.requeue() == 1
    assert routed.visible("plain") == routed.messages(run, "first")


def test_without_stalled_tasks_the_count_is_zero(core: Core) -> None:
    assert core.requeue() == 0
