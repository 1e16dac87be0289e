"""Two sessions, READ COMMITTED: one holds its locks, the other is seen waiting, then the first commits."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

import pytest

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core, Sessions

OTHER_WORKER = UUID("22222222-2222-2222-2222-222222222222")
UNMET = {"never": "there"}


def neighbours(core: Core, mode: str = "fail") -> UUID:
    """A map of three: 0 on its last attempt, 1 claimed, 2 queued; a claimed step beside it."""
    core.flow("busy")
    core.map_step("busy", "each", max_attempts=1, when_exhausted=mode)
    core.step("busy", "beside")
    core.step("busy", "after", "beside")
    run = core.start("busy", [1, 2, 3])
    core.claim(run, "each", 0)
    core.claim(run, "each", 1)
    core.claim(run, "beside")
    return run


def test_the_last_two_tasks_of_a_map_finishing_together_are_both_counted(
    sessions: Sessions, release: str
) -> None:
    one, two = sessions(release, 2)
    one.flow("mapped")
    one.map_step("mapped", "each")
    one.step("mapped", "after", "each")
    run = one.start("mapped", [1, 2])
    one.start_tasks("mapped", one.read("mapped"))
    with one.transaction():
        one.complete(run, "each", "a", 0)
        late = two.in_background(lambda: two.complete(run, "each", "b", 1))
        one.wait_until_blocked(two, late)
    late.result()
    state = one.state(run, "each")
    assert (state["status"], state["remaining_tasks"], state["output"]) == ("completed", 0, ["a", "b"])
    assert one.tasks(run) == {"each/0": "completed", "each/1": "completed", "after/0": "queued"}
    assert one.events(run).count("step:each:completed") == 1
    assert one.run(run)["remaining_steps"] == 1


def test_two_parents_finishing_together_release_their_dependent_once(
    sessions: Sessions, release: str
) -> None:
    one, two = sessions(release, 2)
    one.flow("join")
    for slug in ("left", "right"):
        one.step("join", slug)
    one.step("join", "end", "left", "right")
    run = one.start("join", {})
    one.start_tasks("join", one.read("join"))
    with one.transaction():
        one.complete(run, "left", 1)
        late = two.in_background(lambda: two.complete(run, "right", 2))
        one.wait_until_blocked(two, late)
    late.result()
    assert one.states(run) == {"left": "completed", "right": "completed", "end": "started"}
    assert one.tasks(run, "end") == {"end/0": "queued"}
    assert one.events(run).count("step:end:started") == 1


def test_callbacks_of_different_runs_do_not_wait_for_each_other(sessions: Sessions, release: str) -> None:
    one, two = sessions(release, 2)
    one.flow("plain")
    one.step("plain", "first")
    left, right = one.start("plain", {}), one.start("plain", {})
    one.start_tasks("plain", one.read("plain"))
    two.execute("set lock_timeout = '5s'")
    with one.transaction():
        one.complete(left, "first", 1)
        two.complete(right, "first", 2)
    assert one.run(left)["status"] == one.run(right)["status"] == "completed"


def test_a_completion_that_waited_sees_that_the_run_failed(sessions: Sessions, hardened_release: str) -> None:
    one, two = sessions(hardened_release, 2)
    run = neighbours(one)
    with one.transaction():
        one.fail(run, "each", "the end", 0)
        late = two.in_background(lambda: two.complete(run, "beside", "too late"))
        one.wait_until_blocked(two, late)
    assert late.result() == [one.task(run, "beside")]
    task = one.task(run, "beside")
    assert (task["status"], task["output"], task["completed_at"]) == ("cancelled", None, None)
    assert one.states(run) == {"each": "failed", "beside": "started", "after": "created"}
    assert one.run(run)["remaining_steps"] == 3
    assert one.events(run)[-2:] == ["step:each:failed", "run:failed"]
    assert one.queued("busy") == []


def test_at_0_15_0_a_completion_that_waited_counts_although_the_run_failed(sessions: Sessions) -> None:
    one, two = sessions("core_0_15_0", 2)
    run = neighbours(one)
    with one.transaction():
        one.fail(run, "each", "the end", 0)
        late = two.in_background(lambda: two.complete(run, "beside", "too late"))
        one.wait_until_blocked(two, late)
    late.result()
    task = one.task(run, "beside")
    assert (task["status"], task["output"]) == ("completed", "too late")
    assert one.states(run) == {"each": "failed", "beside": "completed", "after": "created"}
    assert (one.run(run)["status"], one.run(run)["remaining_steps"]) == ("failed", 2)


def test_a_failure_that_waited_sees_that_the_run_failed(sessions: Sessions, hardened_release: str) -> None:
    one, two = sessions(hardened_release, 2)
    run = neighbours(one)
    before = one.task(run, "beside")
    with one.transaction():
        one.fail(run, "each", "the end", 0)
        late = two.in_background(lambda: two.fail(run, "beside", "too late"))
        one.wait_until_blocked(two, late)
    assert late.result() == [one.task(run, "beside")]
    assert one.task(run, "beside") == before | {"status": "cancelled"}
    assert one.events(run)[-2:] == ["step:each:failed", "run:failed"]
    assert one.queued("busy") == []


def test_at_0_15_0_a_failure_that_waited_queues_the_task_of_a_failed_run_again(sessions: Sessions) -> None:
    one, two = sessions("core_0_15_0", 2)
    run = neighbours(one)
    with one.transaction():
        one.fail(run, "each", "the end", 0)
        late = two.in_background(lambda: two.fail(run, "beside", "too late"))
        one.wait_until_blocked(two, late)
    late.result()
    task = one.task(run, "beside")
    assert (task["status"], task["error_message"]) == ("queued", "too late")


@pytest.mark.parametrize("callback", ["complete", "fail"])
def test_the_status_of_the_run_is_looked_at_again_under_its_lock(
    sessions: Sessions, hardened_release: str, callback: str
) -> None:
    """Whatever failed the run, and although it left the task started: only the message goes."""
    one, two = sessions(hardened_release, 2)
    run = neighbours(one)
    with one.transaction():
        one.execute("update pgflow.runs set status = 'failed', failed_at = now()")
        before = one.everything()
        late = two.in_background(lambda: getattr(two, callback)(run, "beside", "too late"))
        one.wait_until_blocked(two, late)
    assert late.result() == [one.task(run, "beside")]
    assert one.everything() == before
    assert one.archived("busy") == one.messages(run, "beside")


def test_a_completion_that_waited_for_its_step_to_be_skipped_is_a_late_callback(
    sessions: Sessions, hardened_release: str
) -> None:
    one, two = sessions(hardened_release, 2)
    run = neighbours(one, "skip")
    with one.transaction():
        one.fail(run, "each", "the end", 0)
        late = two.in_background(lambda: two.complete(run, "each", "too late", 1))
        one.wait_until_blocked(two, late)
    assert late.result() == [one.task(run, "each", 1)]
    assert one.tasks(run, "each") == {"each/0": "failed", "each/1": "skipped", "each/2": "skipped"}
    assert one.states(run) == {"each": "skipped", "beside": "started", "after": "created"}
    assert one.run(run)["remaining_steps"] == 2


def test_the_same_completion_twice_at_a_time_counts_once(sessions: Sessions, release: str) -> None:
    one, two = sessions(release, 2)
    run = neighbours(one)
    with one.transaction():
        one.complete(run, "beside", "first")
        late = two.in_background(lambda: two.complete(run, "beside", "second"))
        one.wait_until_blocked(two, late)
    assert late.result() == [one.task(run, "beside")]
    assert one.task(run, "beside")["output"] == "first"
    assert one.run(run)["remaining_steps"] == 2
    assert one.events(run).count("step:beside:completed") == 1


@pytest.mark.parametrize(("mode", "status"), [("fail", "cancelled"), ("skip", "skipped")])
def test_a_claim_that_comes_first_is_undone_by_the_failure_that_waited(
    sessions: Sessions, hardened_release: str, mode: str, status: str
) -> None:
    one, two = sessions(hardened_release, 2)
    run = neighbours(one, mode)
    with one.transaction():
        assert len(one.claim(run, "each", 2)) == 1
        claimed = one.task(run, "each", 2)
        late = two.in_background(lambda: two.fail(run, "each", "the end", 0))
        one.wait_until_blocked(two, late)
    late.result()
    assert one.task(run, "each", 2) == claimed | {"status": status}
    before = one.everything("busy")
    one.complete(run, "each", "too late", 2)
    one.fail(run, "each", "too late", 2)
    assert one.everything("busy") == before


@pytest.mark.parametrize(("mode", "status"), [("fail", "cancelled"), ("skip", "skipped")])
def test_a_claim_that_waited_for_a_failure_gets_nothing(
    sessions: Sessions, waiting_release: str, mode: str, status: str
) -> None:
    one, two = sessions(waiting_release, 2)
    run = neighbours(one, mode)
    queued = one.task(run, "each", 2)
    with one.transaction():
        one.fail(run, "each", "the end", 0)
        late = two.in_background(lambda: two.claim(run, "each", 2))
        one.wait_until_blocked(two, late)
    assert late.result() == []
    assert one.task(run, "each", 2) == queued | {"status": status}


def test_a_claim_that_loses_one_row_keeps_the_others(sessions: Sessions, waiting_release: str) -> None:
    one, two = sessions(waiting_release, 2)
    run = neighbours(one, "skip")
    other = one.start("busy", [1])
    messages = [one.task(run, "each", 2)["message_id"], one.task(other, "beside")["message_id"]]
    with one.transaction():
        one.fail(run, "each", "the end", 0)
        late = two.in_background(lambda: two.start_tasks("busy", messages))
        one.wait_until_blocked(two, late)
    assert [(record["run_id"], record["step_slug"]) for record in late.result()] == [(other, "beside")]


def two_claims(one: Core, two: Core) -> tuple[list[dict[str, object]], dict[str, object], dict[str, object]]:
    """Both sessions claim the same message; what the second got, the task after the first and at the end."""
    one.flow("plain")
    one.step("plain", "first")
    run = one.start("plain", {})
    one.worker(OTHER_WORKER)
    message = one.task(run, "first")["message_id"]
    with one.transaction():
        assert len(one.start_tasks("plain", [message])) == 1
        claimed = one.task(run, "first")
        late = two.in_background(lambda: two.start_tasks("plain", [message], OTHER_WORKER))
        one.wait_until_blocked(two, late)
    return late.result(), claimed, one.task(run, "first")


def test_the_second_of_two_claims_of_a_message_gets_nothing(sessions: Sessions, waiting_release: str) -> None:
    second, claimed, final = two_claims(*sessions(waiting_release, 2))
    assert second == []
    assert final == claimed


@pytest.mark.parametrize(("mode", "status"), [("fail", "cancelled"), ("skip", "skipped")])
def test_since_queue_identity_a_claim_leaves_what_a_failure_holds_and_waits_for_nothing(
    sessions: Sessions, mode: str, status: str
) -> None:
    one, two = sessions("queue_identity", 2)
    run = neighbours(one, mode)
    other = one.start("busy", [1])
    two.execute("set lock_timeout = '5s'")
    held, free = one.task(run, "each", 2), one.task(other, "beside")["message_id"]
    vt = one.message(run, "each", 2)["vt"]
    with one.transaction():
        one.fail(run, "each", "the end", 0)
        claimed = two.claim_tasks("busy", "busy", [held["message_id"], free])
        assert [task["run_id"] for task in claimed["tasks"]] == [str(other)]
        assert (claimed["busy"], claimed["archived"]) == ([str(held["message_id"])], [])
        assert two.message(run, "each", 2)["vt"] == vt
    assert one.task(run, "each", 2) == held | {"status": status}
    assert held["message_id"] in one.archived("busy")


def test_since_queue_identity_the_second_of_two_claims_of_a_message_leaves_it(sessions: Sessions) -> None:
    one, two = sessions("queue_identity", 2)
    one.flow("plain")
    one.step("plain", "first")
    run = one.start("plain", {})
    one.worker(OTHER_WORKER)
    two.execute("set lock_timeout = '5s'")
    with one.transaction():
        assert len(one.claim_tasks("plain", "plain", [1])["tasks"]) == 1
        claimed = one.task(run, "first")
        second = two.claim_tasks("plain", "plain", [1], OTHER_WORKER)
        assert (second["tasks"], second["busy"], second["deferred"]) == ([], ["1"], [])
    assert one.task(run, "first") == claimed
    # Once the first has committed, the message is put off.
    assert two.claim_tasks("plain", "plain", [1], OTHER_WORKER)["deferred"] == ["1"]
    assert one.task(run, "first") == claimed


def test_at_0_15_0_the_second_of_two_claims_gets_the_record_although_it_changed_nothing(
    sessions: Sessions,
) -> None:
    second, claimed, final = two_claims(*sessions("core_0_15_0", 2))
    assert [(record["step_slug"], record["task_index"]) for record in second] == [("first", 0)]
    assert final == claimed
    assert final["attempts_count"] == 1
    assert final["last_worker_id"] != OTHER_WORKER


def test_a_completion_that_waited_for_a_requeue_finds_the_task_queued(
    sessions: Sessions, release: str
) -> None:
    one, two = sessions(release, 2)
    run = neighbours(one)
    one.age(run, "beside", 1000)
    with one.transaction():
        assert one.requeue() == 1
        late = two.in_background(lambda: two.complete(run, "beside", "too late"))
        one.wait_until_blocked(two, late)
    assert late.result() == [one.task(run, "beside")]
    task = one.task(run, "beside")
    assert (task["status"], task["output"], task["requeued_count"]) == ("queued", None, 1)
    assert one.states(run)["beside"] == "started"
    assert task["message_id"] in one.queued("busy")


def overtake(one: Core, two: Core) -> tuple[UUID, datetime]:
    """``one``'s transaction has begun (when, is returned); then the task is requeued and claimed anew."""
    two.flow("pair")
    two.step("pair", "list", max_attempts=1)
    two.map_step("pair", "each", "list")
    run = two.start("pair", {})
    two.claim(run, "list")
    one.execute("begin")
    begun: datetime = one.value("select now()")
    two.age(run, "list", 1000)
    assert two.requeue() == 1
    assert len(two.claim(run, "list")) == 1
    return run, begun


CALLBACKS = ["complete", "fail", "violate"]


def report(core: Core, kind: str, run: UUID) -> None:
    """A success, a last failure, or an output that the map cannot take."""
    if kind == "fail":
        core.fail(run, "list")
    else:
        core.complete(run, "list", ["an", "array"] if kind == "complete" else "no array")


@pytest.mark.parametrize("kind", CALLBACKS)
def test_the_old_cores_refuse_a_callback_whose_transaction_began_before_the_task_was_claimed_anew(
    sessions: Sessions, waiting_release: str, kind: str
) -> None:
    """It would have ended before it started: 23514, and the report is lost."""
    one, two = sessions(waiting_release, 2)
    run, _ = overtake(one, two)
    with one.error() as caught:
        report(one, kind, run)
    assert caught.value.sqlstate == "23514"
    assert str(caught.value.diag.constraint_name).endswith("_is_after_started_at")
    one.execute("rollback")
    assert two.task(run, "list")["status"] == "started"


@pytest.mark.parametrize("kind", CALLBACKS)
def test_since_queue_identity_it_counts_and_the_task_ends_when_it_started(
    sessions: Sessions, kind: str
) -> None:
    one, two = sessions("queue_identity", 2)
    run, begun = overtake(one, two)
    report(one, kind, run)
    one.execute("commit")
    task = two.task(run, "list")
    ended = task["completed_at"] if kind == "complete" else task["failed_at"]
    assert task["status"] == ("completed" if kind == "complete" else "failed")
    assert ended == task["started_at"] > begun
    assert two.run(run)["status"] == ("started" if kind == "complete" else "failed")


def test_a_requeue_skips_a_task_that_a_completion_holds(sessions: Sessions, release: str) -> None:
    one, two = sessions(release, 2)
    run = neighbours(one)
    one.age(run, "beside", 1000)
    two.execute("set lock_timeout = '5s'")
    with one.transaction():
        one.complete(run, "beside", "in time")
        assert two.requeue() == 0
    task = one.task(run, "beside")
    assert (task["status"], task["requeued_count"]) == ("completed", 0)


def test_two_requeues_at_a_time_do_not_wait_and_count_a_task_once(sessions: Sessions, release: str) -> None:
    one, two = sessions(release, 2)
    run = neighbours(one)
    one.age(run, "beside", 1000)
    two.execute("set lock_timeout = '5s'")
    with one.transaction():
        assert one.requeue() == 1
        assert two.requeue() == 0
    assert one.task(run, "beside")["requeued_count"] == 1


def waiting_condition(core: Core) -> UUID:
    """``strict`` is ready with an unmet condition in mode fail, which nothing has evaluated yet."""
    core.flow("strict")
    core.step("strict", "strict", required_input_pattern={"go": True}, when_unmet="fail")
    core.step("strict", "other")
    run = core.start("strict", {"go": True})
    core.execute("delete from pgflow.step_tasks where step_slug = 'strict'")
    core.execute(
        "update pgflow.step_states set status = 'created', started_at = null, remaining_tasks = null"
        " where step_slug = 'strict'"
    )
    core.execute("update pgflow.runs set input = '{}'")
    return run


def test_a_failing_condition_that_waited_for_the_end_of_the_run_does_nothing(
    sessions: Sessions, hardened_release: str
) -> None:
    one, two = sessions(hardened_release, 2)
    run = waiting_condition(one)
    with one.transaction():
        one.execute("update pgflow.runs set status = 'failed', failed_at = now()")
        late = two.in_background(lambda: two.value("select pgflow.cascade_resolve_conditions(%s)", run))
        one.wait_until_blocked(two, late)
        before = one.everything("strict")
    assert late.result() is False
    assert one.everything("strict") == before
    assert one.states(run) == {"strict": "created", "other": "started"}


def test_at_0_15_0_a_failing_condition_that_waited_fails_the_step_all_the_same(sessions: Sessions) -> None:
    one, two = sessions("core_0_15_0", 2)
    run = waiting_condition(one)
    with one.transaction():
        one.execute("update pgflow.runs set status = 'failed', failed_at = now()")
        late = two.in_background(lambda: two.value("select pgflow.cascade_resolve_conditions(%s)", run))
        one.wait_until_blocked(two, late)
    assert late.result() is False
    assert one.states(run) == {"strict": "failed", "other": "started"}
    assert one.events(run)[-2:] == ["step:strict:failed", "run:failed"]
