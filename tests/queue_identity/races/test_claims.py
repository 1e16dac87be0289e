"""Claims against everything else that moves the tasks behind a batch of messages.

A claim waits for nobody's task or message: what another session holds is ``busy``, and left as it was read.

The flow of most tests, ``busy``: ``beside`` (message 1) is followed by ``after``; ``each`` is a map of three
(messages 2, 3 and 4) whose first failure fails the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb
from tests.core.runtime.conftest import WORKER

if TYPE_CHECKING:
    from tests.queue_identity.races.conftest import Race, Session

OTHER_WORKER = UUID("22222222-2222-2222-2222-222222222222")
STEPS = {"beside": "started", "each": "started", "after": "created"}
TASKS = {
    "beside/0": ("queued", 0, 0),
    "each/0": ("queued", 0, 0),
    "each/1": ("queued", 0, 0),
    "each/2": ("queued", 0, 0),
}
CLAIMED = ("started", 1, 0)


def busy(session: Session) -> UUID:
    session.flow("busy")
    session.step("busy", "beside")
    session.step("busy", "after", "beside")
    session.map_step("busy", "each", max_attempts=1)
    session.worker()
    session.worker(OTHER_WORKER)
    return session.start("busy", [1, 2, 3])


def stalled(session: Session, run: UUID, requeued: int = 0) -> None:
    """``beside`` is claimed, and has been for long."""
    assert session.claimed("busy", [1]) == {"claimed": [1]}
    session.age(run, "beside", 1000)
    session.execute("update pgflow.step_tasks set requeued_count = %s where step_slug = 'beside'", requeued)


def hidden_for(session: Session, queue: str) -> dict[int, int]:
    """Each message of a queue, and the seconds, rounded, until it is visible; 0 when it is."""
    rows = session.rows(
        f"select msg_id, greatest(0, round(extract(epoch from vt - clock_timestamp())))::int as seconds"
        f" from pgmq.q_{queue} order by 1"
    )
    return {row["msg_id"]: row["seconds"] for row in rows}


# -- the run fails


@pytest.mark.parametrize("commit", [True, False])
def test_a_claim_passes_over_the_tasks_of_a_run_that_is_failing(race: Race, commit: bool) -> None:
    run = busy(race.one)
    race.one.claimed("busy", [2])
    other = race.one.start("busy", [])
    outcome = race.run_past(
        lambda one: one.fail(run, "each", "the end", 0),
        lambda two: two.claimed("busy", [1, 2, 3, 4, 5]),
        commit=commit,
    )
    assert outcome.second == {"claimed": [5], "busy": [1, 2, 3, 4]}
    assert race.one.progress(other)[2] == {"beside/0": CLAIMED}
    if commit:
        assert race.one.progress(run) == (
            "failed",
            STEPS | {"each": "failed"},
            dict.fromkeys(TASKS, ("cancelled", 0, 0)) | {"each/0": ("failed", 1, 0)},
        )
        assert race.two.claimed("busy", [1, 2, 3, 4]) == {}
        assert (race.one.queued("busy"), race.one.archived("busy")) == ([5], [1, 2, 3, 4])
    else:
        assert race.two.claimed("busy", [1, 2, 3, 4]) == {"claimed": [1, 3, 4], "deferred": [2]}
        assert race.one.progress(run) == ("started", STEPS, dict.fromkeys(TASKS, CLAIMED))
        assert (race.one.queued("busy"), race.one.archived("busy")) == ([1, 2, 3, 4, 5], [])


@pytest.mark.parametrize("commit", [True, False])
def test_the_failure_of_the_run_waits_for_a_claim_and_cancels_what_it_got(race: Race, commit: bool) -> None:
    run = busy(race.one)
    race.one.claimed("busy", [2])
    outcome = race.run(
        lambda one: one.claimed("busy", [1, 3]),
        lambda two: two.fail(run, "each", "the end", 0),
        commit=commit,
    )
    assert outcome.first == {"claimed": [1, 3]}
    attempts = 1 if commit else 0
    assert race.one.progress(run) == (
        "failed",
        STEPS | {"each": "failed"},
        {
            "beside/0": ("cancelled", attempts, 0),
            "each/0": ("failed", 1, 0),
            "each/1": ("cancelled", attempts, 0),
            "each/2": ("cancelled", 0, 0),
        },
    )
    assert (race.one.queued("busy"), race.one.archived("busy")) == ([], [1, 2, 3, 4])
    before = race.one.everything("busy")
    race.one.complete(run, "beside", "too late")
    race.one.fail(run, "each", "too late", 1)
    assert race.one.everything("busy") == before


# -- the task is completed


@pytest.mark.parametrize("commit", [True, False])
def test_a_claim_passes_over_a_task_that_is_being_completed(race: Race, commit: bool) -> None:
    run = busy(race.one)
    race.one.claimed("busy", [1])
    race.one.read("busy", vt=300)
    outcome = race.run_past(
        lambda one: one.complete(run, "beside", "done"),
        lambda two: two.claimed("busy", [1, 2], OTHER_WORKER),
        commit=commit,
    )
    assert outcome.second == {"claimed": [2], "busy": [1]}
    if commit:
        assert race.two.claimed("busy", [1]) == {}
        assert race.one.progress(run) == (
            "started",
            {"beside": "completed", "each": "started", "after": "started"},
            TASKS | {"beside/0": ("completed", 1, 0), "each/0": CLAIMED, "after/0": ("queued", 0, 0)},
        )
        assert (race.one.queued("busy"), race.one.archived("busy")) == ([2, 3, 4, 5], [1])
    else:
        # Message 1 is hidden by the claim before, and was not touched since.
        assert hidden_for(race.one, "busy") == {1: 62, 2: 62, 3: 300, 4: 300}
        assert race.two.claimed("busy", [1], OTHER_WORKER) == {"deferred": [1]}
        assert race.one.progress(run) == ("started", STEPS, TASKS | {"beside/0": CLAIMED, "each/0": CLAIMED})
        assert (race.one.queued("busy"), race.one.archived("busy")) == ([1, 2, 3, 4], [])


@pytest.mark.parametrize("commit", [True, False])
def test_a_completion_waits_for_a_claim_that_defers_its_message(race: Race, commit: bool) -> None:
    run = busy(race.one)
    race.one.claimed("busy", [1])
    outcome = race.run(
        lambda one: one.claimed("busy", [1, 2], OTHER_WORKER),
        lambda two: two.complete(run, "beside", "done"),
        commit=commit,
    )
    assert outcome.first == {"claimed": [2], "deferred": [1]}
    assert race.one.progress(run) == (
        "started",
        {"beside": "completed", "each": "started", "after": "started"},
        TASKS
        | {"beside/0": ("completed", 1, 0), "after/0": ("queued", 0, 0)}
        | ({"each/0": CLAIMED} if commit else {}),
    )
    assert (race.one.queued("busy"), race.one.archived("busy")) == ([2, 3, 4, 5], [1])
    worker = race.one.value("select last_worker_id from pgflow.step_tasks where step_slug = 'beside'")
    assert worker != OTHER_WORKER


def test_a_claim_and_a_callback_of_different_tasks_of_a_run_do_not_wait_for_each_other(race: Race) -> None:
    run = busy(race.one)
    race.one.claimed("busy", [1])
    outcome = race.run_past(
        lambda one: one.claimed("busy", [2]), lambda two: two.complete(run, "beside", "done")
    )
    assert outcome.first == {"claimed": [2]}
    with race.held(lambda one: one.complete(run, "each", "done", 0)):
        assert race.two.claimed("busy", [3, 5]) == {"claimed": [3, 5]}
    assert race.one.progress(run) == (
        "started",
        {"beside": "completed", "each": "started", "after": "started"},
        TASKS
        | dict.fromkeys(("beside/0", "each/0"), ("completed", 1, 0))
        | {"each/1": CLAIMED, "after/0": CLAIMED},
    )


@pytest.mark.parametrize("commit", [True, False])
def test_a_claim_passes_over_the_last_task_of_a_run_that_is_being_completed(race: Race, commit: bool) -> None:
    race.one.flow("plain")
    race.one.step("plain", "only")
    race.one.worker()
    run = race.one.start("plain", {})
    race.one.claimed("plain", [1])
    outcome = race.run_past(
        lambda one: one.complete(run, "only", "done"), lambda two: two.claimed("plain", [1]), commit=commit
    )
    assert outcome.second == {"busy": [1]}
    status, queues = ("completed", ([], [1])) if commit else ("started", ([1], []))
    assert race.one.progress(run) == (status, {"only": status}, {"only/0": (status, 1, 0)})
    assert (race.one.queued("plain"), race.one.archived("plain")) == queues


# -- the task has stalled


@pytest.mark.parametrize("commit", [True, False])
def test_a_claim_passes_over_what_recovery_holds(race: Race, commit: bool) -> None:
    run = busy(race.one)
    stalled(race.one, run)
    outcome = race.run_past(
        lambda one: one.requeue(), lambda two: two.claimed("busy", [1, 2], OTHER_WORKER), commit=commit
    )
    assert (outcome.first, outcome.second) == (1, {"claimed": [2], "busy": [1]})
    if commit:
        assert hidden_for(race.one, "busy")[1] == 0
        assert race.two.claimed("busy", [1], OTHER_WORKER) == {"claimed": [1]}
        assert race.one.progress(run)[2]["beside/0"] == ("started", 2, 1)
        assert hidden_for(race.one, "busy")[1] == 62
        assert race.one.task(run, "beside")["last_worker_id"] == OTHER_WORKER
    else:
        assert race.two.claimed("busy", [1], OTHER_WORKER) == {"deferred": [1]}
        assert race.one.progress(run)[2]["beside/0"] == ("started", 1, 0)
        assert hidden_for(race.one, "busy")[1] == 15
        assert race.one.task(run, "beside")["last_worker_id"] != OTHER_WORKER
    assert race.one.archived("busy") == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_claim_passes_over_what_recovery_gives_up(race: Race, commit: bool) -> None:
    run = busy(race.one)
    stalled(race.one, run, requeued=3)
    outcome = race.run_past(
        lambda one: one.requeue(), lambda two: two.claimed("busy", [1, 2], OTHER_WORKER), commit=commit
    )
    assert (outcome.first, outcome.second) == (0, {"claimed": [2], "busy": [1]})
    assert race.two.claimed("busy", [1], OTHER_WORKER) == ({} if commit else {"deferred": [1]})
    assert race.one.progress(run)[2]["beside/0"] == ("started", 1, 3)
    assert (race.one.task(run, "beside")["permanently_stalled_at"] is not None) == commit
    assert (race.one.queued("busy"), race.one.archived("busy")) == (
        ([2, 3, 4], [1]) if commit else ([1, 2, 3, 4], [])
    )


@pytest.mark.parametrize("commit", [True, False])
def test_recovery_passes_over_what_a_claim_holds(race: Race, commit: bool) -> None:
    run = busy(race.one)
    stalled(race.one, run)
    other = race.one.start("busy", [])
    race.one.claim(other, "beside")
    race.one.age(other, "beside", 1000)
    outcome = race.run_past(
        lambda one: one.claimed("busy", [1], OTHER_WORKER), lambda two: two.requeue(), commit=commit
    )
    assert (outcome.first, outcome.second) == ({"deferred": [1]}, 1)
    assert race.one.tasks(run, "beside") == {"beside/0": "started"}
    assert race.one.tasks(other, "beside") == {"beside/0": "queued"}
    assert race.one.requeue() == 1
    assert race.one.tasks(run, "beside") == {"beside/0": "queued"}


# -- the flow is deleted


@pytest.mark.parametrize("commit", [True, False])
def test_a_claim_passes_over_the_tasks_of_a_flow_that_is_being_deleted(race: Race, commit: bool) -> None:
    run = busy(race.one)
    race.one.execute("select pgflow.track_worker_function('test_worker')")
    outcome = race.run_past(
        lambda one: one.delete("busy"), lambda two: two.claimed("busy", [1, 2]), commit=commit
    )
    assert outcome.second == {"busy": [1, 2]}
    if commit:
        assert race.one.traces("busy") == []
        again = race.two.claim_batch("busy", "busy", [1, 2])
        assert again == {
            "outcome": "fatal",
            "queue_name": "busy",
            "reason": 'flow "busy" does not exist',
            "messages": [],
            "message_count": 0,
            "paused_function": "test_worker",
        }
        assert race.one.value("select pause_reason from pgflow.worker_functions") == again["reason"]
    else:
        assert race.two.claimed("busy", [1, 2]) == {"claimed": [1, 2]}
        assert race.one.progress(run) == ("started", STEPS, TASKS | {"beside/0": CLAIMED, "each/0": CLAIMED})


@pytest.mark.parametrize("commit", [True, False])
def test_the_old_claim_gets_no_rows_of_a_flow_that_is_being_deleted(race: Race, commit: bool) -> None:
    busy(race.one)
    outcome = race.run_past(
        lambda one: one.delete("busy"), lambda two: two.start_tasks("busy", [1, 2]), commit=commit
    )
    assert outcome.second == []
    assert len(race.two.start_tasks("busy", [1, 2])) == (0 if commit else 2)


@pytest.mark.parametrize("commit", [True, False])
def test_the_deletion_waits_for_a_claim_and_takes_all_with_it(race: Race, commit: bool) -> None:
    run = busy(race.one)
    outcome = race.run(lambda one: one.claimed("busy", [1, 2]), lambda two: two.delete("busy"), commit=commit)
    assert (outcome.first, outcome.second) == ({"claimed": [1, 2]}, None)
    assert race.one.traces("busy") == []
    assert race.one.complete(run, "beside", "too late") == race.one.fail(run, "each") == []


@pytest.mark.parametrize("commit", [True, False])
def test_a_claim_of_a_stray_waits_for_the_queue_that_is_being_dropped(race: Race, commit: bool) -> None:
    """No task says whose the message is, so it has to be read. On the error a worker tries again."""
    busy(race.one)
    stray = race.one.value("select pgmq.send('busy', '1')")
    outcome = race.run(
        lambda one: one.delete("busy"), lambda two: two.claimed("busy", [stray]), commit=commit
    )
    if commit:
        assert outcome.sqlstate == "42P01"
        assert race.two.claimed("busy", [stray]) == {"fatal": []}
    else:
        assert outcome.second == {"foreign": [stray]}


@pytest.mark.parametrize("commit", [True, False])
def test_the_deletion_waits_for_a_claim_that_archives_a_stray(race: Race, commit: bool) -> None:
    busy(race.one)
    stray = race.one.value("select pgmq.send('busy', '1')")
    outcome = race.run(
        lambda one: one.claimed("busy", [stray]), lambda two: two.delete("busy"), commit=commit
    )
    assert (outcome.first, outcome.second) == ({"foreign": [stray]}, None)
    assert race.one.traces("busy") == []


# -- another claim


@pytest.mark.parametrize("commit", [True, False])
def test_of_two_claims_of_a_batch_the_second_passes_over_all(race: Race, commit: bool) -> None:
    run = busy(race.one)
    outcome = race.run_past(
        lambda one: one.claimed("busy", [1, 2, 3, 4]),
        lambda two: two.claimed("busy", [1, 2, 3, 4], OTHER_WORKER),
        commit=commit,
    )
    assert outcome.second == {"busy": [1, 2, 3, 4]}
    again = race.two.claimed("busy", [1, 2, 3, 4], OTHER_WORKER)
    assert again == {"deferred" if commit else "claimed": [1, 2, 3, 4]}
    assert race.one.progress(run) == ("started", STEPS, dict.fromkeys(TASKS, CLAIMED))
    workers = race.one.rows("select distinct last_worker_id as id from pgflow.step_tasks")
    assert [worker["id"] == OTHER_WORKER for worker in workers] == [not commit]
    assert race.one.queued("busy") == [1, 2, 3, 4]


@pytest.mark.parametrize(("first", "second"), [([1, 2, 3], [4, 3, 2]), ([3, 2, 1], [2, 3, 4])])
def test_of_overlapping_batches_each_task_is_claimed_once(
    race: Race, first: list[int], second: list[int]
) -> None:
    run = busy(race.one)
    outcome = race.run_past(
        lambda one: one.claimed("busy", first), lambda two: two.claimed("busy", second, OTHER_WORKER)
    )
    assert outcome.first == {"claimed": [1, 2, 3]}
    assert outcome.second == {"claimed": [4], "busy": [2, 3]}
    assert race.one.progress(run) == ("started", STEPS, dict.fromkeys(TASKS, CLAIMED))


def test_claims_stopped_in_the_middle_of_opposite_batches_both_end(race: Race) -> None:
    """Both have their tasks and wait for a message that somebody reads: one of them claims each task."""
    run = busy(race.one)
    first, second = race.open(), race.open()
    with race.one.transaction():
        assert race.one.read("busy", quantity=4) == [1, 2, 3, 4]
        forth = first.in_background(lambda: first.claimed("busy", [1, 3]))
        race.one.wait_until_blocked(first, forth)
        back = second.in_background(lambda: second.claimed("busy", [4, 3, 2, 1], OTHER_WORKER))
        race.one.wait_until_blocked(second, back)
    assert (forth.result(), back.result()) == ({"claimed": [1, 3]}, {"claimed": [2, 4], "busy": [1, 3]})
    assert race.one.progress(run) == ("started", STEPS, dict.fromkeys(TASKS, CLAIMED))


@pytest.mark.parametrize("commit", [True, False])
def test_of_two_claims_that_archive_the_same_strays_one_does(race: Race, commit: bool) -> None:
    busy(race.one)
    strays = race.one.rows("select pgmq.send_batch('busy', array['1', '2', '3']::jsonb[]) as id")
    ids = [row["id"] for row in strays]
    outcome = race.run_past(
        lambda one: one.claimed("busy", ids),
        lambda two: two.claimed("busy", ids[::-1], OTHER_WORKER),
        commit=commit,
    )
    assert (outcome.first, outcome.second) == ({"foreign": ids}, {"busy": ids})
    assert race.two.claimed("busy", ids) == ({} if commit else {"foreign": ids})
    assert (race.one.queued("busy"), race.one.archived("busy")) == ([1, 2, 3, 4], ids)


def test_two_claims_of_strays_in_different_orders_do_not_wait_for_each_other(race: Race) -> None:
    """The strays do not lie in the table by id, and only one of the batches is read by index."""
    busy(race.one)
    race.one.execute("select pgmq.send_batch('busy', array_fill('1'::jsonb, array[2000]))")
    ids = [message for message in race.one.queued("busy") if message > 4]
    low, high = ids[0], ids[-1]
    # An update moves the row to the end of the table.
    race.one.execute("select pgmq.set_vt('busy', %s::bigint, 0)", low)
    race.one.execute("vacuum analyze pgmq.q_busy")
    with race.one.transaction():
        race.one.execute("select 1 from pgmq.q_busy where msg_id = %s for update", high)
        with race.two.transaction():
            whole = race.two.claimed("busy", ids)
            pair = race.open().claimed("busy", [low, high], OTHER_WORKER)
    assert whole == {"foreign": ids[:-1], "busy": [high]}
    assert pair == {"busy": [low, high]}
    assert race.one.claimed("busy", [low, high]) == {"foreign": [high]}
    assert race.one.archived("busy") == ids


# -- a fatal claim


def doubtful(session: Session) -> int:
    """A message that looks like pgflow's and has no task."""
    message: int = session.value(
        "select pgmq.send('busy', %s)", Jsonb({"flow_slug": "busy", "run_id": "?", "step_slug": "each"})
    )
    return message


@pytest.mark.parametrize("commit", [True, False])
def test_a_claim_passes_over_what_a_fatal_one_gives_back(race: Race, commit: bool) -> None:
    run = busy(race.one)
    race.one.execute("select pgflow.track_worker_function('test_worker')")
    doubt = doubtful(race.one)
    race.one.read("busy", vt=300)
    outcome = race.run_past(
        lambda one: one.claimed("busy", [1, 2, 3, doubt]),
        lambda two: two.claimed("busy", [1, 2, 4], OTHER_WORKER),
        commit=commit,
    )
    assert outcome.first == {"fatal": [("5", "missing_task")]}
    assert outcome.second == {"claimed": [4], "busy": [1, 2]}
    rest = 0 if commit else 300
    assert hidden_for(race.one, "busy") == {1: rest, 2: rest, 3: rest, 4: 62, doubt: rest}
    assert race.two.claimed("busy", [1, 2], OTHER_WORKER) == {"claimed": [1, 2]}
    assert race.one.progress(run) == (
        "started",
        STEPS,
        TASKS | dict.fromkeys(("beside/0", "each/0", "each/2"), CLAIMED),
    )
    assert (race.one.value("select paused_at from pgflow.worker_functions") is not None) == commit
    race.tidy = "delete from pgmq.q_busy where msg_id = 5"


@pytest.mark.parametrize("commit", [True, False])
def test_a_fatal_claim_takes_nothing_from_one_that_is_under_way(race: Race, commit: bool) -> None:
    run = busy(race.one)
    doubt = doubtful(race.one)
    race.one.read("busy", vt=300)
    outcome = race.run_past(
        lambda one: one.claimed("busy", [1, 2]),
        lambda two: two.claimed("busy", [1, 2, 3, doubt], OTHER_WORKER),
        commit=commit,
    )
    assert outcome.second == {"fatal": [("5", "missing_task")]}
    state, hidden = (CLAIMED, 62) if commit else (("queued", 0, 0), 300)
    assert race.one.progress(run) == ("started", STEPS, TASKS | {"beside/0": state, "each/0": state})
    assert hidden_for(race.one, "busy") == {1: hidden, 2: hidden, 3: 0, 4: 300, doubt: 0}
    assert race.one.archived("busy") == []
    race.tidy = "delete from pgmq.q_busy where msg_id = 5"


def test_a_fatal_claim_and_one_that_archives_a_stray_do_not_wait_in_a_circle(race: Race) -> None:
    """The stray has a lower id than a task's message, which the fatal claim would show again."""
    race.one.flow("busy")
    race.one.step("busy", "only")
    for worker in (WORKER, OTHER_WORKER):
        race.one.worker(worker)
    race.one.execute("select pgmq.send('busy', '1')")
    run = race.one.start("busy", {})
    doubtful(race.one)
    first, second = race.open(), race.open()
    with race.one.transaction():
        race.one.execute("select 1 from pgmq.q_busy where msg_id = 2 for update")
        # It has the task, wants the task's message, and the stray after that.
        normal = first.in_background(lambda: first.claimed("busy", [1, 2]))
        race.one.wait_until_blocked(first, normal)
        assert second.claimed("busy", [1, 2, 3], OTHER_WORKER) == {"fatal": [("3", "missing_task")]}
    assert normal.result() == {"claimed": [2], "foreign": [1]}
    assert race.one.progress(run) == ("started", {"only": "started"}, {"only/0": CLAIMED})
    assert (race.one.queued("busy"), race.one.archived("busy")) == ([2, 3], [1])
    race.tidy = "delete from pgmq.q_busy where msg_id = 3"


def test_of_two_fatal_claims_the_second_waits_to_pause_and_keeps_the_first_reason(race: Race) -> None:
    busy(race.one)
    race.one.execute("select pgflow.track_worker_function('test_worker')")
    doubts = [doubtful(race.one), doubtful(race.one)]
    outcome = race.run(
        lambda one: one.claimed("busy", [1, doubts[0]]),
        lambda two: two.claimed("busy", [doubts[1], 2], OTHER_WORKER),
    )
    assert (outcome.first, outcome.second) == (
        {"fatal": [("5", "missing_task")]},
        {"fatal": [("6", "missing_task")]},
    )
    assert race.one.value("select pause_reason from pgflow.worker_functions").endswith(
        "1 message, 5 (missing_task)"
    )
    race.tidy = "delete from pgmq.q_busy where msg_id > 4"


# -- the pause


def paused_by(session: Session) -> Any:
    """A claim that pauses ``test_worker``."""
    return session.claimed("nowhere", [])


def ensure(session: Session) -> list[str]:
    return [row["function_name"] for row in session.rows("select function_name from pgflow.ensure_workers()")]


def resume(session: Session) -> bool:
    lifted: bool = session.value("select pgflow.resume_worker_function('test_worker')")
    return lifted


def function(session: Session) -> tuple[bool, bool]:
    """Whether the function is paused, and whether it has been invoked."""
    row = session.row("select paused_at, last_invoked_at from pgflow.worker_functions")
    return row["paused_at"] is not None, row["last_invoked_at"] is not None


@pytest.fixture
def local(race: Race) -> Race:
    """A local stack, where every function that is not paused is due; ``test_worker`` is registered."""
    race.one.worker()
    race.one.execute("select pgflow.track_worker_function('test_worker')")
    for session in (race.one, race.two):
        session.execute(
            "set app.settings.jwt_secret = 'super-secret-jwt-token-with-at-least-32-characters-long'"
        )
    return race


@pytest.mark.parametrize("commit", [True, False])
def test_nobody_is_pinged_after_the_pause_that_ensure_workers_waited_for(local: Race, commit: bool) -> None:
    outcome = local.run(paused_by, ensure, commit=commit)
    assert outcome.second == ([] if commit else ["test_worker"])
    assert function(local.one) == (commit, not commit)
    assert local.one.value("select count(*) from net.http_request_queue") == (0 if commit else 1)


@pytest.mark.parametrize("commit", [True, False])
def test_a_pause_that_waited_for_ensure_workers_holds_from_then_on(local: Race, commit: bool) -> None:
    outcome = local.run(ensure, paused_by, commit=commit)
    assert (outcome.first, outcome.second) == (["test_worker"], {"fatal": []})
    assert function(local.one) == (True, commit)
    assert ensure(local.one) == []
    assert local.one.value("select count(*) from net.http_request_queue") == int(commit)


@pytest.mark.parametrize("commit", [True, False])
def test_a_resumption_does_not_wait_for_a_first_pause_that_is_under_way(local: Race, commit: bool) -> None:
    outcome = local.run_past(paused_by, resume, commit=commit)
    assert outcome.second is False
    assert function(local.one) == (commit, False)


@pytest.mark.parametrize("commit", [True, False])
def test_a_resumption_that_waited_for_a_second_pause_lifts_both(local: Race, commit: bool) -> None:
    paused_by(local.one)
    outcome = local.run(paused_by, resume, commit=commit)
    assert outcome.second is True
    assert function(local.one) == (False, False)


@pytest.mark.parametrize("commit", [True, False])
def test_a_pause_that_waited_for_the_resumption_holds(local: Race, commit: bool) -> None:
    paused_by(local.one)
    since = local.one.value("select paused_at from pgflow.worker_functions")
    outcome = local.run(resume, paused_by, commit=commit)
    assert (outcome.first, outcome.second) == (True, {"fatal": []})
    now = local.one.value("select paused_at from pgflow.worker_functions")
    assert now > since if commit else now == since


@pytest.mark.parametrize("commit", [True, False])
def test_of_two_resumptions_one_says_that_it_lifted_the_pause(local: Race, commit: bool) -> None:
    paused_by(local.one)
    outcome = local.run(resume, resume, commit=commit)
    assert (outcome.first, outcome.second) == (True, not commit)
    assert function(local.one) == (False, False)


def test_ensure_workers_pings_what_is_resumed_once_that_is_committed(local: Race) -> None:
    paused_by(local.one)
    outcome = local.run_past(resume, ensure)
    assert outcome.second == []
    assert ensure(local.one) == ["test_worker"]
