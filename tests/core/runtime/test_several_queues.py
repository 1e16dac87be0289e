"""Queue identity: every path works on the task's own queue, and on all of them when there are several.

A path that assumes one queue, or that stops after the first group, leaves a message behind here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core

QUEUES = ("spread", "second_queue", "third_queue")


def reroute(core: Core, run: UUID, step: str, index: int, queue: str) -> None:
    """Move a task and its message to another queue, as its own route would have had it from the start."""
    task = core.task(run, step, index)
    core.execute("select pgmq.create(%s)", queue)
    moved = core.value(
        "select pgmq.send(%s, q.message) from pgmq.q_spread q where q.msg_id = %s", queue, task["message_id"]
    )
    core.lose("spread", task["message_id"])
    core.execute(
        "update pgflow.step_tasks set queue_name = %s, message_id = %s"
        " where run_id = %s and step_slug = %s and task_index = %s",
        queue,
        moved,
        run,
        step,
        index,
    )


def spread(core: Core, **options: object) -> UUID:
    """A run of three map tasks, each in a queue of its own; the other two queues number from 1 as well."""
    core.flow("spread")
    core.map_step("spread", "work", **options)
    run = core.start("spread", [10, 20, 30])
    for index, queue in enumerate(QUEUES[1:], start=1):
        reroute(core, run, "work", index, queue)
    assert {queue: core.queued(queue) for queue in QUEUES} == {
        "spread": [1],
        "second_queue": [1],
        "third_queue": [1],
    }
    return run


def begin(core: Core, run: UUID) -> None:
    """Start all tasks of the run, as claims on each queue would."""
    core.worker()
    core.execute(
        "update pgflow.step_tasks set status = 'started', attempts_count = 1, started_at = now()"
        " where run_id = %s",
        run,
    )


def nothing_left(core: Core) -> bool:
    return all(core.queued(queue) == [] for queue in QUEUES)


def test_a_completed_task_leaves_its_own_queue_only(routed: Core) -> None:
    run = spread(routed)
    begin(routed, run)
    routed.complete(run, "work", "done", 1)
    assert {queue: routed.queued(queue) for queue in QUEUES} == {
        "spread": [1],
        "second_queue": [],
        "third_queue": [1],
    }
    assert routed.archived("second_queue") == [1]


def test_a_late_callback_archives_in_the_tasks_own_queue(routed: Core) -> None:
    run = spread(routed)
    begin(routed, run)
    routed.execute("update pgflow.runs set status = 'failed', failed_at = now() where run_id = %s", run)
    routed.fail(run, "work", "too late", 2)
    assert {queue: routed.queued(queue) for queue in QUEUES} == {
        "spread": [1],
        "second_queue": [1],
        "third_queue": [],
    }


def test_a_retry_delays_the_message_in_the_tasks_own_queue(routed: Core) -> None:
    run = spread(routed, base_delay=100, max_attempts=3)
    begin(routed, run)
    before = routed.value("select vt from pgmq.q_spread")
    routed.fail(run, "work", "again", 1)
    delay = routed.value("select extract(epoch from vt - clock_timestamp())::float from pgmq.q_second_queue")
    assert 190 < delay <= 200
    assert routed.value("select vt from pgmq.q_spread") == before


@pytest.mark.parametrize("mode", ["fail", "skip", "skip-cascade"])
def test_exhaustion_empties_every_queue_of_what_it_ends(routed: Core, mode: str) -> None:
    run = spread(routed, max_attempts=1, when_exhausted=mode)
    begin(routed, run)
    routed.fail(run, "work", "for good", 0)
    assert nothing_left(routed)
    assert {queue: routed.archived(queue) for queue in QUEUES} == {queue: [1] for queue in QUEUES}
    ended = "cancelled" if mode == "fail" else "skipped"
    assert routed.tasks(run) == {"work/0": "failed", "work/1": ended, "work/2": ended}


def test_a_type_violation_empties_every_queue(routed: Core) -> None:
    routed.flow("spread")
    routed.step("spread", "list")
    routed.map_step("spread", "each", "list")
    routed.map_step("spread", "work")
    run = routed.start("spread", [1, 2])
    for index, queue in enumerate(QUEUES[1:]):
        reroute(routed, run, "work", index, queue)
    routed.do(run, "list", "no array")
    assert routed.run(run)["status"] == "failed"
    assert nothing_left(routed)
    assert routed.tasks(run) == {"list/0": "failed", "work/0": "cancelled", "work/1": "cancelled"}


def test_an_unmet_condition_that_fails_the_run_empties_every_queue(routed: Core) -> None:
    routed.flow("spread")
    routed.step("spread", "gate")
    routed.map_step("spread", "work")
    routed.step("spread", "picky", "gate", required_input_pattern={"gate": {"ok": True}}, when_unmet="fail")
    run = routed.start("spread", [1, 2])
    for index, queue in enumerate(QUEUES[1:]):
        reroute(routed, run, "work", index, queue)
    routed.do(run, "gate", {"ok": False})
    assert routed.run(run)["status"] == "failed"
    assert nothing_left(routed)
    assert routed.tasks(run, "work") == {"work/0": "cancelled", "work/1": "cancelled"}


def test_recovery_shows_the_messages_of_every_queue(routed: Core) -> None:
    run = spread(routed, timeout=5)
    begin(routed, run)
    for index in range(3):
        routed.age(run, "work", 36, index)
    for queue in QUEUES:
        routed.rows(f"update pgmq.q_{queue} set vt = clock_timestamp() + interval '1 hour' returning 1")
    assert routed.requeue() == 3
    assert [routed.read(queue) for queue in QUEUES] == [[1], [1], [1]]


def test_given_up_tasks_leave_every_queue_also_when_nothing_is_requeued(routed: Core) -> None:
    run = spread(routed, timeout=5)
    begin(routed, run)
    routed.execute("update pgflow.step_tasks set requeued_count = 3")
    for index in range(3):
        routed.age(run, "work", 36, index)
    assert routed.requeue() == 0
    assert nothing_left(routed)
    assert [routed.archived(queue) for queue in QUEUES] == [[1], [1], [1]]


def test_recovery_passes_over_the_queue_that_is_missing_and_serves_the_others(routed: Core) -> None:
    run = spread(routed, timeout=5)
    begin(routed, run)
    routed.execute("update pgflow.step_tasks set requeued_count = 3 where task_index = 2")
    for index in range(3):
        routed.age(run, "work", 36, index)
    routed.execute("select pgmq.drop_queue('second_queue')")
    lost = routed.task(run, "work", 1)
    with routed.notices() as said:
        assert routed.requeue() == 1
    assert said == [
        'WARNING: stalled tasks are not recovered: their queue or its archive is missing: "second_queue"'
        " pgmq.create() makes what is missing."
    ]
    assert routed.tasks(run) == {"work/0": "queued", "work/1": "started", "work/2": "started"}
    assert routed.task(run, "work", 1) == lost
    assert (routed.visible("spread"), routed.archived("third_queue")) == ([1], [1])


def two_routes(core: Core) -> UUID:
    """A run of two steps in a queue each; both messages have the id 1."""
    core.flow("spread")
    core.step("spread", "here", timeout=10)
    core.step("spread", "there", timeout=100)
    core.execute("select pgmq.create('spread__there')")
    core.execute("update pgflow.steps set queue_name = 'spread__there' where step_slug = 'there'")
    run = core.start("spread", {})
    assert (core.messages(run, "here"), core.messages(run, "there")) == ([1], [1])
    return run


@pytest.mark.parametrize(
    ("queue", "step", "other", "timeout"),
    [("Spread", "here", "there", 10), ("SPREAD__there", "there", "here", 100)],
)
def test_a_claim_gets_the_tasks_of_the_queue_that_it_names_and_no_others(
    routed: Core, queue: str, step: str, other: str, timeout: int
) -> None:
    run = two_routes(routed)
    before = routed.task(run, other), routed.message(run, other)
    with routed.visible_in(run, step, timeout + 2):
        (task,) = routed.claim_tasks(queue, "spread", [1])["tasks"]
    assert (task["step_slug"], task["msg_id"], task["queue_name"]) == (step, "1", queue.lower())
    assert routed.task(run, step)["status"] == "started"
    assert (routed.task(run, other), routed.message(run, other)) == before


def test_the_old_claim_call_serves_the_default_queue_only(routed: Core) -> None:
    run = two_routes(routed)
    assert [task["step_slug"] for task in routed.start_tasks("spread", [1])] == ["here"]
    assert routed.tasks(run) == {"here/0": "started", "there/0": "queued"}


def test_each_verdict_is_carried_out_in_the_queue_that_was_read(routed: Core) -> None:
    run = two_routes(routed)
    second, third = routed.start("spread", {}), routed.start("spread", {})
    routed.claim_tasks("spread__there", "spread", [1])
    routed.execute(
        "update pgflow.step_tasks set status = 'cancelled' where run_id = %s and step_slug = 'there'", second
    )
    stray = routed.send("spread__there", "foreign")
    assert routed.send("spread", "foreign, but not read") == stray
    routed.show("spread__there")
    claimed = routed.claim_tasks("spread__there", "spread", routed.read("spread__there"))
    assert [task["run_id"] for task in claimed["tasks"]] == [str(third)]
    assert (claimed["deferred"], claimed["archived"], claimed["foreign"]) == (["1"], ["2"], [str(stray)])
    assert (routed.queued("spread__there"), routed.archived("spread__there")) == ([1, 3], [2, stray])
    assert (routed.queued("spread"), routed.archived("spread")) == ([1, 2, 3, stray], [])
    assert routed.tasks(run) == {"here/0": "queued", "there/0": "started"}


def test_a_refusal_shows_the_messages_of_the_queue_that_was_read_only(routed: Core) -> None:
    two_routes(routed)
    orphan = routed.send("spread__there", {"run_id": "gone"})
    for queue in ("spread", "spread__there"):
        routed.hide(queue)
    assert routed.claim_tasks("spread__there", "spread", [1, orphan])["outcome"] == "fatal"
    assert (routed.visible("spread"), routed.visible("spread__there")) == ([], [1, orphan])


def test_a_task_that_was_moved_to_another_queue_is_not_taken_for_the_message_it_had(routed: Core) -> None:
    """Its snapshot rules: the message that is left behind has no task, and says whose it is."""
    run = two_routes(routed)
    routed.execute(
        "update pgflow.step_tasks set queue_name = 'spread__there', message_id = 99 where step_slug = 'here'"
    )
    found = routed.claim_tasks("spread", "spread", [1])
    # The body of a task's message names flow, run, step and index.
    assert found["messages"] == [{"msg_id": "1", "reason": "wrong_route"}]
    assert routed.tasks(run) == {"here/0": "queued", "there/0": "queued"}


def test_a_run_over_two_queues_goes_all_the_way(routed: Core) -> None:
    run = two_routes(routed)
    for queue in ("spread", "spread__there"):
        for task in routed.claim_tasks(queue, "spread", routed.read(queue))["tasks"]:
            routed.complete(run, task["step_slug"], task["queue_name"])
    assert routed.run(run)["output"] == {"here": "spread", "there": "spread__there"}
    assert (routed.queued("spread"), routed.queued("spread__there")) == ([], [])
    assert (routed.archived("spread"), routed.archived("spread__there")) == ([1], [1])


def test_new_tasks_go_to_the_queue_of_their_step_and_keep_it(routed: Core) -> None:
    routed.flow("spread")
    routed.step("spread", "here")
    routed.step("spread", "there")
    routed.execute("select pgmq.create('second_queue')")
    routed.execute("update pgflow.steps set queue_name = 'second_queue' where step_slug = 'there'")
    run = routed.start("spread", {})
    routed.execute("update pgflow.steps set queue_name = 'spread'")
    assert (routed.task(run, "here")["queue_name"], routed.task(run, "there")["queue_name"]) == (
        "spread",
        "second_queue",
    )
    assert (routed.queued("spread"), routed.queued("second_queue")) == ([1], [1])


def test_a_claim_on_the_default_queue_does_not_touch_the_same_id_in_another(routed: Core) -> None:
    run = spread(routed)
    claimed = routed.start_tasks("spread", [1])
    assert [(task["step_slug"], task["task_index"]) for task in claimed] == [("work", 0)]
    assert routed.tasks(run) == {"work/0": "started", "work/1": "queued", "work/2": "queued"}


def test_the_same_message_of_a_queue_cannot_belong_to_two_tasks(routed: Core) -> None:
    run = spread(routed)
    with routed.error() as caught:
        routed.execute("update pgflow.step_tasks set queue_name = 'spread' where run_id = %s", run)
    assert caught.value.diag.sqlstate == "23505"
    assert caught.value.diag.constraint_name == "step_tasks_queue_message_key"
