"""Callbacks, new runs and recovery against deletion, and callbacks against each other."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest

if TYPE_CHECKING:
    from tests.queue_identity.races.conftest import Call, Race, Session

REVISIONS = ("dirty_runs",)
OTHER_WORKER = UUID("22222222-2222-2222-2222-222222222222")


def plain(session: Session, flow: str = "plain", **options: object) -> UUID:
    """A run of ``first`` (claimed) and then ``second``; another run's ``first`` is queued."""
    session.flow(flow)
    session.step(flow, "first", **options)
    session.step(flow, "second", "first")
    session.worker()
    session.worker(OTHER_WORKER)
    run = session.start(flow, {})
    session.start(flow, {})
    assert session.claimed(flow, [1]) == {"claimed": [1]}
    return run


# -- deletion


def call_on(call: str, run: UUID) -> Call:
    """A callback for ``first``."""
    if call == "complete":
        return lambda session: [row["status"] for row in session.complete(run, "first", "done")]
    return lambda session: [row["status"] for row in session.fail(run, "first")]


AFTER = {
    "complete": ({"first": "completed", "second": "started"}, ("completed", 1, 0)),
    "retry": ({"first": "started", "second": "created"}, ("queued", 1, 0)),
    "fail": ({"first": "failed", "second": "created"}, ("failed", 1, 0)),
}


@pytest.mark.parametrize("call", list(AFTER))
def test_a_callback_that_waited_for_the_deletion_finds_nothing(race: Race, call: str) -> None:
    run = plain(race.one, max_attempts=1 if call == "fail" else 3)
    outcome = race.run(lambda one: one.delete("plain"), call_on(call, run))
    assert outcome.second == []
    assert race.one.traces("plain") == []


@pytest.mark.parametrize("call", list(AFTER))
def test_a_callback_that_waited_for_a_deletion_that_is_rolled_back_counts(race: Race, call: str) -> None:
    run = plain(race.one, max_attempts=1 if call == "fail" else 3)
    outcome = race.run(lambda one: one.delete("plain"), call_on(call, run), commit=False)
    states, task = AFTER[call]
    assert outcome.second == [task[0]]
    status, seen, tasks = race.one.progress(run)
    assert (status, seen, tasks["first/0"]) == ("failed" if call == "fail" else "started", states, task)
    assert race.one.queued("plain") == {"complete": [2, 3], "retry": [1, 2], "fail": [2]}[call]
    assert race.one.archived("plain") == ([] if call == "retry" else [1])


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("call", list(AFTER))
def test_the_deletion_waits_for_a_callback(race: Race, call: str, commit: bool) -> None:
    run = plain(race.one, max_attempts=1 if call == "fail" else 3)
    outcome = race.run(call_on(call, run), lambda two: two.delete("plain"), commit=commit)
    assert (outcome.first, outcome.second) == ([AFTER[call][1][0]], None)
    assert race.one.traces("plain") == []


def test_a_run_that_waited_for_the_deletion_is_not_begun(race: Race) -> None:
    plain(race.one)
    outcome = race.run(lambda one: one.delete("plain"), lambda two: two.start("plain", {}))
    assert outcome.sqlstate == "23503"
    assert race.one.traces("plain") == []


def test_a_run_that_waited_for_a_deletion_that_is_rolled_back_begins(race: Race) -> None:
    plain(race.one)
    outcome = race.run(lambda one: one.delete("plain"), lambda two: two.start("plain", {}), commit=False)
    assert race.one.progress(outcome.second) == (
        "started",
        {"first": "started", "second": "created"},
        {"first/0": ("queued", 0, 0)},
    )
    assert race.one.queued("plain") == [1, 2, 3]


@pytest.mark.parametrize("commit", [True, False])
def test_the_deletion_waits_for_a_run_that_is_being_begun(race: Race, commit: bool) -> None:
    """Also when it had looked for runs before that one was there."""
    plain(race.one)
    outcome = race.run(lambda one: one.start("plain", {}), lambda two: two.delete("plain"), commit=commit)
    assert outcome.second is None
    assert race.one.traces("plain") == []


def test_a_run_that_waited_for_a_local_recompilation_is_not_begun_on_the_old_steps(race: Race) -> None:
    plain(race.one)
    race.one.execute(
        "set app.settings.jwt_secret = 'super-secret-jwt-token-with-at-least-32-characters-long'"
    )
    outcome = race.run(lambda one: one.compile("plain", "only"), lambda two: two.start("plain", {}))
    assert outcome.first == "recompiled"
    assert outcome.sqlstate == "23503"
    assert race.one.value("select count(*) from pgflow.runs") == 0
    assert race.one.states(race.two.start("plain", {})) == {"only": "started"}


def test_a_deletion_that_meets_a_callback_of_a_run_begun_meanwhile_gives_its_locks_back(race: Race) -> None:
    """The run begins while the deletion waits to lock the flow; holding that, it must not wait for a run."""
    plain(race.one)
    one, two, callback, deleter = race.one, race.two, race.open(), race.open()
    with two.transaction():
        two.start("plain", {})
        with one.transaction():
            run = one.start("plain", {})
            deletion = deleter.in_background(lambda: deleter.delete("plain"))
            deleter.wait_until_waiting(callback, deletion)
        two.wait_until_blocked(deleter, deletion)
        assert len(callback.claim(run, "first")) == 1
        callback.execute("begin")
        callback.fail(run, "first")
    callback.wait_until_blocked(deleter, deletion)
    # The flow is free for runs again.
    one.execute("set lock_timeout = '5s'")
    one.start("plain", {})
    callback.execute("commit")
    deletion.result()
    assert one.traces("plain") == []


@pytest.mark.parametrize("commit", [True, False])
def test_the_deletion_waits_for_recovery(race: Race, commit: bool) -> None:
    run = plain(race.one)
    race.one.age(run, "first", 1000)
    outcome = race.run(lambda one: one.requeue(), lambda two: two.delete("plain"), commit=commit)
    assert (outcome.first, outcome.second) == (1, None)
    assert race.one.traces("plain") == []


@pytest.mark.parametrize("commit", [True, False])
def test_recovery_passes_over_the_tasks_of_a_flow_that_is_being_deleted(race: Race, commit: bool) -> None:
    run, other = plain(race.one), plain(race.one, "other")
    race.one.age(run, "first", 1000)
    race.one.age(other, "first", 1000)
    outcome = race.run_past(lambda one: one.delete("plain"), lambda two: two.requeue(), commit=commit)
    assert outcome.second == 1
    assert race.one.task(other, "first")["requeued_count"] == 1
    if commit:
        assert race.one.traces("plain") == []
        assert race.one.requeue() == 0
    else:
        assert race.one.task(run, "first")["requeued_count"] == 0
        assert race.one.requeue() == 1


# -- the last tasks of a step


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("commit", [True, False])
def test_the_last_two_tasks_of_a_map_are_both_counted(
    race: Race, order: tuple[int, int], commit: bool
) -> None:
    race.one.flow("mapped")
    race.one.map_step("mapped", "each")
    race.one.step("mapped", "after", "each")
    race.one.worker()
    run = race.one.start("mapped", ["a", "b"])
    race.one.claimed("mapped", [1, 2])
    early, late = order
    race.run(
        lambda one: one.complete(run, "each", f"output {early}", early),
        lambda two: two.complete(run, "each", f"output {late}", late),
        commit=commit,
    )
    if not commit:
        assert race.one.state(run, "each")["remaining_tasks"] == 1
        race.one.complete(run, "each", f"output {early}", early)
    assert race.one.state(run, "each")["output"] == ["output 0", "output 1"]
    assert race.one.progress(run) == (
        "started",
        {"each": "completed", "after": "started"},
        {"each/0": ("completed", 1, 0), "each/1": ("completed", 1, 0), "after/0": ("queued", 0, 0)},
    )
    assert (race.one.queued("mapped"), race.one.archived("mapped")) == ([3], [1, 2])
    assert race.one.events(run).count("step:each:completed") == 1


@pytest.mark.parametrize("first", ["complete", "fail"])
@pytest.mark.parametrize("commit", [True, False])
def test_of_a_completion_and_a_failure_of_one_task_the_first_counts(
    race: Race, first: str, commit: bool
) -> None:
    run = plain(race.one, max_attempts=1)
    second = {"complete": "fail", "fail": "complete"}[first]
    outcome = race.run(call_on(first, run), call_on(second, run), commit=commit)
    status = {"complete": "completed", "fail": "failed"}[first if commit else second]
    assert outcome.second == [status]
    assert race.one.progress(run)[1]["first"] == status
    assert race.one.queued("plain") == ([2, 3] if status == "completed" else [2])
    assert race.one.archived("plain") == [1]


# -- a callback that waits while its task is requeued and claimed anew


def overtaken(race: Race, callback: Call, run: UUID, *, claim: bool = True) -> None:
    """The callback waits for its sibling's; meanwhile its own task is requeued, and claimed anew.

    The callback's transaction is then older than the start of the task.
    """
    other = race.open()
    with race.held(lambda one: one.complete(run, "other", "done")):
        late = race.two.in_background(lambda: callback(race.two))
        race.one.wait_until_blocked(race.two, late)
        other.age(run, "first", 1000)
        assert other.requeue() == 1
        if claim:
            assert other.claimed("fan", [1], OTHER_WORKER) == {"claimed": [1]}
    late.result()


def fan(session: Session, **options: object) -> UUID:
    """``first`` (message 1) is followed by a map, ``other`` (message 2) is beside it; both are claimed."""
    session.flow("fan")
    session.step("fan", "first", **options)
    session.step("fan", "other")
    session.map_step("fan", "second", "first")
    session.worker()
    session.worker(OTHER_WORKER)
    run = session.start("fan", {})
    session.claimed("fan", [1, 2])
    return run


OTHER = {"other/0": ("completed", 1, 0)}


def test_a_completion_counts_for_the_claim_that_overtook_it(race: Race) -> None:
    run = fan(race.one)
    overtaken(race, lambda two: two.complete(run, "first", [1]), run)
    assert race.one.progress(run) == (
        "started",
        {"first": "completed", "other": "completed", "second": "started"},
        {"first/0": ("completed", 2, 1), "second/0": ("queued", 0, 0)} | OTHER,
    )
    task = race.one.task(run, "first")
    assert task["completed_at"] == task["started_at"]
    assert (race.one.queued("fan"), race.one.archived("fan")) == ([3], [1, 2])
    before = race.one.everything("fan")
    race.one.complete(run, "first", ["the other worker's"])
    assert race.one.everything("fan") == before


def test_a_failure_counts_for_the_claim_that_overtook_it(race: Race) -> None:
    run = fan(race.one)
    overtaken(race, lambda two: two.fail(run, "first"), run)
    assert race.one.progress(run)[2] == {"first/0": ("queued", 2, 1)} | OTHER
    assert (race.one.queued("fan"), race.one.archived("fan")) == ([1], [2])


@pytest.mark.parametrize(
    ("mode", "status", "first", "second"),
    [
        ("fail", "failed", "failed", "created"),
        ("skip", "completed", "skipped", "completed"),
        ("skip-cascade", "completed", "skipped", "skipped"),
    ],
)
def test_a_last_failure_counts_for_the_claim_that_overtook_it(
    race: Race, mode: str, status: str, first: str, second: str
) -> None:
    run = fan(race.one, max_attempts=1, when_exhausted=mode)
    overtaken(race, lambda two: two.fail(run, "first"), run)
    assert race.one.progress(run) == (
        status,
        {"first": first, "other": "completed", "second": second},
        {"first/0": ("failed", 2, 1)} | OTHER,
    )
    task = race.one.task(run, "first")
    assert task["failed_at"] == task["started_at"]
    assert (race.one.queued("fan"), race.one.archived("fan")) == ([], [1, 2])


def test_a_type_violation_counts_for_the_claim_that_overtook_it(race: Race) -> None:
    run = fan(race.one)
    overtaken(race, lambda two: two.complete(run, "first", "no array"), run)
    assert race.one.progress(run) == (
        "failed",
        {"first": "failed", "other": "completed", "second": "created"},
        {"first/0": ("failed", 2, 1)} | OTHER,
    )
    task = race.one.task(run, "first")
    assert task["failed_at"] == task["started_at"]
    assert (race.one.queued("fan"), race.one.archived("fan")) == ([], [1, 2])


@pytest.mark.parametrize("callback", ["complete", "fail"])
def test_a_callback_that_waited_while_its_task_was_requeued_leaves_it_queued(
    race: Race, callback: str
) -> None:
    run = fan(race.one)
    calls: dict[str, Call] = {
        "complete": lambda two: two.complete(run, "first", [1]),
        "fail": lambda two: two.fail(run, "first"),
    }
    overtaken(race, calls[callback], run, claim=False)
    assert race.one.progress(run)[2] == {"first/0": ("queued", 1, 1)} | OTHER
    assert (race.one.queued("fan"), race.one.archived("fan")) == ([1], [2])


def test_a_type_violation_of_a_requeued_task_ends_it_once(race: Race) -> None:
    run = fan(race.one)
    overtaken(race, lambda two: two.complete(run, "first", "no array"), run, claim=False)
    assert race.one.progress(run) == (
        "failed",
        {"first": "failed", "other": "completed", "second": "created"},
        {"first/0": ("failed", 1, 1)} | OTHER,
    )
    assert race.one.task(run, "first")["output"] == "no array"
    assert (race.one.queued("fan"), race.one.archived("fan")) == ([], [1, 2])
    assert race.one.claimed("fan", [1], OTHER_WORKER) == {}
