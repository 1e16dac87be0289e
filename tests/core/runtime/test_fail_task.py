"""fail_task: retries with growing delays, exhaustion in its three modes, late callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core

MODES = ["fail", "skip", "skip-cascade"]


def single(core: Core, **options: object) -> UUID:
    core.flow("plain", base_delay=3)
    core.step("plain", "first", **options)
    core.step("plain", "second", "first")
    return core.start("plain", {})


def crowd(core: Core, mode: str) -> UUID:
    """A map with tasks done (0), queued (1), claimed (2), claimed to be failed (3); busy neighbours."""
    core.flow("crowd", max_attempts=5)
    core.map_step("crowd", "each", max_attempts=1, when_exhausted=mode)
    core.step("crowd", "below", "each")
    core.map_step("crowd", "below_map", "each")
    core.step("crowd", "deeper", "below")
    core.step("crowd", "busy")
    core.step("crowd", "waiting")
    run = core.start("crowd", [1, 2, 3, 4])
    core.do(run, "each", "done", 0)
    core.claim(run, "each", 2)
    core.claim(run, "busy")
    core.claim(run, "each", 3)
    return run


# -- result and guards


def test_the_task_row_is_returned_as_it_is_at_the_end(core: Core) -> None:
    run = single(core)
    core.claim(run, "first")
    assert core.fail(run, "first") == [core.task(run, "first")]


def test_an_unknown_run_step_or_index_gives_no_row_and_no_error(core: Core) -> None:
    run = single(core)
    core.claim(run, "first")
    before = core.everything("plain")
    assert core.fail(uuid4(), "first") == []
    assert core.fail(run, "absent") == []
    assert core.fail(run, "first", index=5) == []
    assert core.everything("plain") == before


def test_on_a_failed_run_only_the_message_is_archived(hardened: Core) -> None:
    run = single(hardened)
    hardened.claim(run, "first")
    hardened.execute("update pgflow.runs set status = 'failed', failed_at = now() where run_id = %s", run)
    before = hardened.everything()
    assert hardened.fail(run, "first") == [hardened.task(run, "first")]
    assert hardened.everything() == before
    assert hardened.queued("plain") == []
    assert hardened.archived("plain") == hardened.messages(run, "first")


def test_at_0_15_0_a_started_task_of_a_failed_run_becomes_failed(unhardened: Core) -> None:
    run = single(unhardened)
    unhardened.claim(run, "first")
    unhardened.execute("update pgflow.runs set status = 'failed', failed_at = now() where run_id = %s", run)
    before = unhardened.task(run, "first"), unhardened.state(run, "first"), unhardened.events(run)
    assert unhardened.fail(run, "first", "too late") == [unhardened.task(run, "first")]
    assert unhardened.task(run, "first") == before[0] | {
        "status": "failed",
        "failed_at": unhardened.value("select now()"),
        "error_message": "too late",
    }
    assert (unhardened.state(run, "first"), unhardened.events(run)) == before[1:]
    assert unhardened.queued("plain") == []


@pytest.mark.parametrize(
    "change",
    [
        "status = 'skipped', skip_reason = 'x', skipped_at = now(), remaining_tasks = null",
        "status = 'failed', failed_at = now()",
        "status = 'completed', completed_at = now(), remaining_tasks = 0",
        "status = 'created', started_at = null, remaining_tasks = null",
    ],
    ids=["skipped", "failed", "completed", "created"],
)
def test_a_step_that_is_not_started_only_has_its_message_archived(core: Core, change: str) -> None:
    run = single(core)
    core.claim(run, "first")
    core.execute(f"update pgflow.step_states set {change} where run_id = %s and step_slug = 'first'", run)
    before = core.everything()
    assert core.fail(run, "first") == [core.task(run, "first")]
    assert core.everything() == before
    assert core.queued("plain") == []
    assert core.archived("plain") == core.messages(run, "first")


# -- retries


def test_a_retry_queues_the_task_again(core: Core) -> None:
    run = single(core)
    core.claim(run, "first")
    before = core.task(run, "first"), core.state(run, "first"), core.run(run), core.events(run)
    core.fail(run, "first", "went wrong")
    assert core.task(run, "first") == before[0] | {
        "status": "queued",
        "started_at": None,
        "error_message": "went wrong",
    }
    assert core.task(run, "first")["attempts_count"] == 1
    assert core.task(run, "first")["last_worker_id"] is not None
    assert (core.state(run, "first"), core.run(run), core.events(run)) == before[1:]


def test_a_retry_clears_the_error_of_its_step_and_of_no_other(core: Core) -> None:
    run = single(core)
    other = core.start("plain", {})
    core.claim(run, "first")
    core.execute("update pgflow.step_states set error_message = 'old'")
    core.fail(run, "first")
    assert core.state(run, "first")["error_message"] is None
    assert core.state(run, "second")["error_message"] == "old"
    assert core.state(other, "first")["error_message"] == "old"


@pytest.mark.parametrize(("flow_delay", "step_delay"), [(3, None), (3, 7), (3, 0)])
def test_the_delay_doubles_with_each_attempt(core: Core, flow_delay: int, step_delay: int | None) -> None:
    core.flow("plain", base_delay=flow_delay, max_attempts=5)
    core.step("plain", "first", base_delay=step_delay)
    run = core.start("plain", {})
    base = flow_delay if step_delay is None else step_delay
    for factor in (2, 4, 8, 16):
        core.claim(run, "first")
        with core.visible_in(run, "first", base * factor):
            core.fail(run, "first")
    assert core.task(run, "first")["attempts_count"] == 4


def test_the_start_delay_is_not_applied_again(core: Core) -> None:
    run = single(core, start_delay=1000)
    core.claim(run, "first")
    with core.visible_in(run, "first", 6):
        core.fail(run, "first")


def test_a_delay_beyond_the_integer_range_is_an_error(core: Core) -> None:
    core.flow("plain", base_delay=2147483647)
    core.step("plain", "first")
    run = core.start("plain", {})
    core.claim(run, "first")
    before = core.everything("plain")
    with core.error() as caught:
        core.fail(run, "first")
    assert caught.value.sqlstate == "22003"
    assert core.everything("plain") == before


@pytest.mark.parametrize(
    ("flow_attempts", "step_attempts", "allowed"),
    [(3, None, 3), (3, 1, 1), (3, 0, 1), (1, 4, 4), (0, None, 1), (1, None, 1)],
)
def test_the_effective_maximum_decides_when_attempts_are_exhausted(
    core: Core, flow_attempts: int, step_attempts: int | None, allowed: int
) -> None:
    core.flow("plain", max_attempts=flow_attempts)
    core.step("plain", "first", max_attempts=step_attempts)
    run = core.start("plain", {})
    for _ in range(allowed):
        assert core.task(run, "first")["status"] == "queued"
        core.break_(run, "first")
    task = core.task(run, "first")
    assert (task["status"], task["attempts_count"]) == ("failed", allowed)
    assert core.run(run)["status"] == "failed"


def test_each_task_of_a_map_has_its_own_attempts(core: Core) -> None:
    core.flow("mapped", max_attempts=2)
    core.map_step("mapped", "each")
    run = core.start("mapped", [1, 2])
    core.break_(run, "each", index=0)
    core.break_(run, "each", index=1)
    assert core.tasks(run) == {"each/0": "queued", "each/1": "queued"}
    core.break_(run, "each", index=1)
    assert core.task(run, "each", 1)["status"] == "failed"
    assert core.states(run) == {"each": "failed"}


def test_a_retried_task_can_complete(core: Core) -> None:
    run = single(core)
    core.break_(run, "first")
    core.do(run, "first", 1)
    assert core.states(run) == {"first": "completed", "second": "started"}


# -- exhausted, mode fail


def test_an_exhausted_task_keeps_its_start_and_stores_the_error(core: Core) -> None:
    run = single(core, max_attempts=1)
    core.claim(run, "first")
    before = core.task(run, "first")
    core.fail(run, "first", "the end")
    assert core.task(run, "first") == before | {
        "status": "failed",
        "failed_at": core.value("select now()"),
        "error_message": "the end",
    }


def test_mode_fail_fails_step_and_run(core: Core) -> None:
    run = crowd(core, "fail")
    before = core.state(run, "each"), core.run(run)
    core.fail(run, "each", "the end", 3)
    now = core.value("select now()")
    assert core.state(run, "each") == before[0] | {
        "status": "failed",
        "failed_at": now,
        "error_message": "the end",
    }
    assert core.state(run, "each")["remaining_tasks"] == 3
    assert core.run(run) == before[1] | {"status": "failed", "failed_at": now}
    assert core.run(run)["remaining_steps"] == 6


def test_mode_fail_sends_the_step_then_the_run_once_each(core: Core) -> None:
    run = single(core, max_attempts=1)
    core.break_(run, "first", "the end")
    assert core.events(run) == ["run:started", "step:first:started", "step:first:failed", "run:failed"]
    step, whole = core.sent(run)[-2:]
    assert step["payload"]["error_message"] == whole["payload"]["error_message"] == "the end"


def test_mode_fail_cancels_all_unfinished_tasks_of_the_run(hardened: Core) -> None:
    run = crowd(hardened, "fail")
    before = hardened.task(run, "each", 2), hardened.task(run, "waiting")
    hardened.fail(run, "each", "the end", 3)
    assert hardened.tasks(run) == {
        "each/0": "completed",
        "each/1": "cancelled",
        "each/2": "cancelled",
        "each/3": "failed",
        "busy/0": "cancelled",
        "waiting/0": "cancelled",
    }
    assert hardened.task(run, "each", 2) == before[0] | {"status": "cancelled"}
    assert hardened.task(run, "waiting") == before[1] | {"status": "cancelled"}


def test_at_0_15_0_mode_fail_leaves_the_rows_of_unfinished_tasks(unhardened: Core) -> None:
    run = crowd(unhardened, "fail")
    unhardened.fail(run, "each", "the end", 3)
    assert unhardened.tasks(run) == {
        "each/0": "completed",
        "each/1": "queued",
        "each/2": "started",
        "each/3": "failed",
        "busy/0": "started",
        "waiting/0": "queued",
    }


def test_mode_fail_archives_every_message_of_the_run(core: Core) -> None:
    run = crowd(core, "fail")
    other = core.start("crowd", [1])
    core.fail(run, "each", "the end", 3)
    assert core.queued("crowd") == core.messages(other, "each", "busy", "waiting")
    assert core.archived("crowd") == core.messages(run, "each", "busy", "waiting")


def test_mode_fail_leaves_the_other_steps(core: Core) -> None:
    run = crowd(core, "fail")
    steps = ("below", "below_map", "deeper", "busy", "waiting")
    before = [core.state(run, step) for step in steps]
    core.fail(run, "each", "the end", 3)
    assert [core.state(run, step) for step in steps] == before
    assert core.states(run) == {
        "each": "failed",
        "below": "created",
        "below_map": "created",
        "deeper": "created",
        "busy": "started",
        "waiting": "started",
    }
    assert {core.state(run, step)["error_message"] for step in steps} == {None}


# -- exhausted, skip modes


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_the_skip_modes_skip_the_step_with_its_error(core: Core, mode: str) -> None:
    run = crowd(core, mode)
    before = core.state(run, "each")
    core.fail(run, "each", "the end", 3)
    assert core.state(run, "each") == before | {
        "status": "skipped",
        "skip_reason": "handler_failed",
        "skipped_at": core.value("select now()"),
        "error_message": "the end",
        "remaining_tasks": None,
    }


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_the_skip_modes_skip_unfinished_siblings_only(hardened: Core, mode: str) -> None:
    run = crowd(hardened, mode)
    before = [hardened.task(run, "each", index) for index in range(4)]
    hardened.fail(run, "each", "the end", 3)
    assert hardened.task(run, "each", 0) == before[0]
    assert hardened.task(run, "each", 1) == before[1] | {"status": "skipped"}
    assert hardened.task(run, "each", 2) == before[2] | {"status": "skipped"}
    assert hardened.task(run, "each", 3)["status"] == "failed"
    assert (hardened.task(run, "busy")["status"], hardened.task(run, "waiting")["status"]) == (
        "started",
        "queued",
    )


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_at_0_15_0_the_skip_modes_leave_the_rows_of_siblings(unhardened: Core, mode: str) -> None:
    run = crowd(unhardened, mode)
    unhardened.fail(run, "each", "the end", 3)
    assert unhardened.tasks(run, "each") == {
        "each/0": "completed",
        "each/1": "queued",
        "each/2": "started",
        "each/3": "failed",
    }


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_the_skip_modes_archive_the_messages_of_the_step_only(core: Core, mode: str) -> None:
    run = crowd(core, mode)
    core.fail(run, "each", "the end", 3)
    assert core.archived("crowd") == core.messages(run, "each")
    expected = ["busy", "waiting"] + (["below"] if mode == "skip" else [])
    assert core.queued("crowd") == core.messages(run, *expected)


def test_skip_releases_direct_dependents(core: Core) -> None:
    run = crowd(core, "skip")
    core.fail(run, "each", "the end", 3)
    assert core.states(run) == {
        "each": "skipped",
        "below": "started",
        "below_map": "completed",
        "deeper": "created",
        "busy": "started",
        "waiting": "started",
    }
    assert core.state(run, "below")["remaining_deps"] == 0
    assert core.state(run, "deeper")["remaining_deps"] == 1
    empty = core.state(run, "below_map")
    assert (empty["remaining_deps"], empty["initial_tasks"], empty["output"]) == (0, 0, [])
    assert core.run(run)["remaining_steps"] == 4


def test_skip_counts_dependents_down_whatever_their_status(core: Core) -> None:
    core.flow("fan", max_attempts=1)
    core.step("fan", "first", when_exhausted="skip")
    core.step("fan", "gone", required_input_pattern={"never": "there"}, when_unmet="skip-cascade")
    core.step("fan", "join", "first", "gone")
    run = core.start("fan", {})
    core.break_(run, "first")
    assert core.states(run)["join"] == "skipped"
    assert core.state(run, "join")["remaining_deps"] == 1


def test_skip_sends_its_event_before_what_follows(core: Core) -> None:
    run = crowd(core, "skip")
    sent = len(core.sent(run))
    core.fail(run, "each", "the end", 3)
    assert core.events(run)[sent:] == ["step:each:skipped", "step:below_map:completed", "step:below:started"]
    assert core.sent(run)[sent]["payload"]["error_message"] == "the end"


def test_a_dependent_does_not_see_the_skipped_parent(core: Core) -> None:
    run = crowd(core, "skip")
    core.fail(run, "each", "the end", 3)
    (record,) = core.claim(run, "below")
    assert record["input"] == {}


def test_a_condition_behind_a_skip_is_resolved(core: Core) -> None:
    core.flow("plain", max_attempts=1)
    core.step("plain", "first", when_exhausted="skip")
    core.step("plain", "second", "first", required_input_pattern={"first": {}})
    run = core.start("plain", {})
    core.break_(run, "first")
    assert core.states(run) == {"first": "skipped", "second": "skipped"}
    assert core.state(run, "second")["skip_reason"] == "condition_unmet"
    assert core.run(run)["status"] == "completed"


def test_a_condition_behind_a_skip_can_fail_the_run(core: Core) -> None:
    core.flow("plain", max_attempts=1)
    core.step("plain", "first", when_exhausted="skip")
    core.step("plain", "second", "first", required_input_pattern={"first": {}}, when_unmet="fail")
    core.step("plain", "side")
    run = core.start("plain", {})
    core.claim(run, "first")
    assert core.fail(run, "first", "the end") == [core.task(run, "first")]
    assert core.states(run) == {"first": "skipped", "second": "failed", "side": "started"}
    assert core.tasks(run) == {"first/0": "failed", "side/0": "cancelled" if core.hardened else "queued"}
    assert core.run(run)["status"] == "failed"
    assert core.run(run)["remaining_steps"] == 2
    assert core.events(run)[-3:] == ["step:first:skipped", "step:second:failed", "run:failed"]
    assert core.sent(run)[-1]["payload"]["error_message"] == "Condition not met"
    assert core.queued("plain") == []
    assert core.archived("plain") == core.messages(run, "first", "side")


def test_skip_cascade_skips_all_that_depends_and_starts_nothing(core: Core) -> None:
    run = crowd(core, "skip-cascade")
    core.fail(run, "each", "the end", 3)
    rows = core.rows(
        "select step_slug, status, skip_reason, remaining_deps from pgflow.step_states"
        " where run_id = %s order by step_slug",
        run,
    )
    assert [tuple(row.values()) for row in rows] == [
        ("below", "skipped", "dependency_skipped", 1),
        ("below_map", "skipped", "dependency_skipped", 1),
        ("busy", "started", None, 0),
        ("deeper", "skipped", "dependency_skipped", 1),
        ("each", "skipped", "handler_failed", 0),
        ("waiting", "started", None, 0),
    ]
    assert core.run(run)["remaining_steps"] == 2
    assert core.events(run).count("step:each:skipped") == 1
    assert (
        core.value("select initial_tasks is null from pgflow.step_states where step_slug = 'below_map'")
        is True
    )


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_skipping_the_only_step_left_completes_the_run_with_a_null_output(core: Core, mode: str) -> None:
    core.flow("plain", max_attempts=1)
    core.step("plain", "first", when_exhausted=mode)
    run = core.start("plain", {})
    core.break_(run, "first")
    row = core.run(run)
    assert (row["status"], row["remaining_steps"]) == ("completed", 0)
    assert core.value("select output is null from pgflow.runs where run_id = %s", run) is True
    assert core.events(run)[-2:] == ["step:first:skipped", "run:completed"]
    assert core.queued("plain") == []


def test_a_skipped_leaf_has_no_key_in_the_output(core: Core) -> None:
    core.flow("plain", max_attempts=1)
    core.step("plain", "first", when_exhausted="skip")
    core.step("plain", "other")
    run = core.start("plain", {})
    core.do(run, "other", 1)
    core.break_(run, "first")
    assert core.run(run)["output"] == {"other": 1}


# -- corner cases


def test_a_queued_task_only_has_its_message_delayed(core: Core) -> None:
    run = single(core)
    before = core.everything()
    with core.visible_in(run, "first", 3):
        assert core.fail(run, "first") == [core.task(run, "first")]
    assert core.everything() == before
    assert core.queued("plain") == core.messages(run, "first")


def test_a_task_queued_again_has_its_message_delayed_by_its_attempts(core: Core) -> None:
    run = single(core)
    core.break_(run, "first")
    core.show("plain")
    with core.visible_in(run, "first", 6):
        core.fail(run, "first", "again")
    assert core.task(run, "first")["error_message"] == "it broke"


def test_a_completed_task_of_a_started_map_keeps_its_output(core: Core) -> None:
    core.flow("mapped")
    core.map_step("mapped", "each")
    run = core.start("mapped", [1, 2])
    core.do(run, "each", "done", 0)
    before = core.everything("mapped")
    assert core.fail(run, "each", "late", 0) == [core.task(run, "each", 0)]
    assert core.everything("mapped") == before


@pytest.mark.parametrize("mode", MODES)
def test_replays_after_exhaustion_change_nothing(core: Core, mode: str) -> None:
    run = crowd(core, mode)
    core.fail(run, "each", "the end", 3)
    before = core.everything("crowd")
    assert core.fail(run, "each", "again", 3) == [core.task(run, "each", 3)]
    assert core.complete(run, "each", "late", 3) == [core.task(run, "each", 3)]
    assert core.everything("crowd") == before
    assert core.task(run, "each", 3)["error_message"] == "the end"


@pytest.mark.parametrize("mode", MODES)
def test_late_callbacks_of_ended_siblings_change_nothing(hardened: Core, mode: str) -> None:
    run = crowd(hardened, mode)
    hardened.fail(run, "each", "the end", 3)
    before = hardened.everything("crowd")
    for index in (1, 2):
        assert hardened.fail(run, "each", "late", index) == [hardened.task(run, "each", index)]
        assert hardened.complete(run, "each", "late", index) == [hardened.task(run, "each", index)]
    assert hardened.everything("crowd") == before


def given_up(core: Core, **options: object) -> UUID:
    """A run whose only task has attempts left and is permanently stalled."""
    run = single(core, **options)
    core.claim(run, "first")
    core.execute("update pgflow.step_tasks set requeued_count = 3 where run_id = %s", run)
    core.age(run, "first", 1000)
    assert core.requeue() == 0
    return run


def test_the_old_cores_queue_a_permanently_stalled_task_again_when_it_fails_late(old_core: Core) -> None:
    run = given_up(old_core)
    old_core.fail(run, "first", "late")
    task = old_core.task(run, "first")
    assert (task["status"], task["error_message"], task["started_at"]) == ("queued", "late", None)
    assert task["permanently_stalled_at"] == old_core.value("select now()")
    assert old_core.requeue() == 0


@pytest.mark.parametrize("old_core", ["core_0_15_1", "core_0_16_0"], indirect=True)
def test_without_its_message_such_a_task_is_lost_for_good(old_core: Core) -> None:
    run = given_up(old_core)
    old_core.execute("select pgflow._archive_task_message(%s, 'first', 0)", run)
    old_core.fail(run, "first", "late")
    assert old_core.read("plain") == []
    with old_core.error() as caught:
        old_core.claim(run, "first")
    assert caught.value.sqlstate == "22P02"
    assert old_core.task(run, "first")["status"] == "queued"
    assert old_core.run(run)["status"] == "started"


@pytest.mark.parametrize(
    ("mode", "states", "whole"),
    [
        ("fail", {"first": "failed", "second": "created"}, "failed"),
        ("skip", {"first": "skipped", "second": "started"}, "started"),
        ("skip-cascade", {"first": "skipped", "second": "skipped"}, "completed"),
    ],
)
def test_queue_identity_takes_the_late_failure_of_a_permanently_stalled_task_for_its_last(
    routed: Core, mode: str, states: dict[str, str], whole: str
) -> None:
    run = given_up(routed, max_attempts=5, when_exhausted=mode)
    routed.fail(run, "first", "late")
    task = routed.task(run, "first")
    assert (task["status"], task["error_message"], task["attempts_count"]) == ("failed", "late", 1)
    assert (routed.states(run), routed.run(run)["status"]) == (states, whole)
    assert routed.queued("plain") == routed.messages(run, "second")
    assert routed.archived("plain") == routed.messages(run, "first")


def test_callbacks_never_raise_for_unknown_late_or_duplicate_calls(core: Core) -> None:
    """At any status of the task, in whatever order."""
    run = crowd(core, "skip")
    core.fail(run, "each", "the end", 3)
    for index in range(5):
        for _ in range(2):
            core.complete(run, "each", 1, index)
            core.fail(run, "each", "late", index)
    assert core.states(run)["each"] == "skipped"
    assert core.events(run).count("step:each:skipped") == 1
