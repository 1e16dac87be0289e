"""Reports that hang, that fail after a commit, that are interrupted: bounded, and never a second outcome."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar
from uuid import UUID

import psycopg
import pytest
from tests.dirty_runs.conftest import Open
from tests.dirty_runs.protocol import Session, token

from pgflow_migrate.dirty_runs import reporter
from pgflow_migrate.dirty_runs.client import Sender
from pgflow_migrate.dirty_runs.executor import Executed, Executor
from pgflow_migrate.dirty_runs.outcomes import (
    Accepted,
    Answer,
    Claimed,
    Conflict,
    NotClaimed,
    Outcome,
    Refused,
    Unconfirmed,
)
from pgflow_migrate.dirty_runs.reporter import Report

PATIENCE = 30.0
FIRST_DELAY = reporter.FIRST_DELAY


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "FIRST_DELAY", 0.001)


class Counting:
    """Reports for real, counts, and fails where it is told to."""

    def __init__(self, dsn: str, fail_after_commit: int = 0) -> None:
        self._send = Sender(dsn, 30)
        self._failures = fail_after_commit
        self.sent: list[tuple[UUID, Outcome]] = []

    def __call__(self, claim: UUID, outcome: Outcome) -> Answer:
        self.sent.append((claim, outcome))
        answer = self._send(claim, outcome)
        if len(self.sent) <= self._failures:
            raise psycopg.OperationalError("the connection was lost")
        return answer


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        threading.Event().wait(0.005)


def test_the_bounds_are_the_contracts() -> None:
    calls: list[float] = []

    def send(_claim: UUID, _outcome: Outcome) -> Answer:
        calls.append(time.monotonic())
        raise psycopg.OperationalError("no")

    found = Report(token(), Outcome.succeeded(1), send).submit()
    assert found == Unconfirmed("attempts", 5, in_flight=False, last_error="no")
    assert len(calls) == 5
    assert Report.__init__.__kwdefaults__ == {"attempts": 5, "seconds": 10}


def test_a_round_of_no_attempts_is_a_mistake_and_sends_nothing() -> None:
    sent: list[UUID] = []

    def send(claim: UUID, _outcome: Outcome) -> Answer:
        sent.append(claim)
        raise psycopg.OperationalError("no")

    with pytest.raises(AssertionError, match="at least one attempt"):
        Report(token(), Outcome.succeeded(1), send, attempts=0).submit()
    assert sent == []


class Watched(queue.SimpleQueue[Any]):
    """Remembers how long it was waited on."""

    waits: ClassVar[list[float]] = []

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self.waits.append(-1.0 if timeout is None else timeout)
        return super().get(block, timeout)


def failing(_claim: UUID, _outcome: Outcome) -> Answer:
    raise psycopg.OperationalError("no")


def test_the_delays_between_attempts_double_from_a_quarter_of_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Watched, "waits", [])
    monkeypatch.setattr(queue, "SimpleQueue", Watched)
    assert FIRST_DELAY == 0.25
    assert Report(token(), Outcome.succeeded(1), failing, seconds=PATIENCE).submit() == Unconfirmed(
        "attempts", 5, in_flight=False, last_error="no"
    )
    assert Watched.waits[1::2] == [0.001, 0.002, 0.004, 0.008]
    # Attempts are waited for until the deadline, all of them together.
    attempts = Watched.waits[::2]
    assert len(attempts) == 5
    assert PATIENCE >= attempts[0] > attempts[-1] > 0
    assert sorted(attempts, reverse=True) == attempts


def test_a_deadline_between_attempts_ends_the_round_with_nothing_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reporter, "FIRST_DELAY", PATIENCE)
    monkeypatch.setattr(Watched, "waits", [])
    monkeypatch.setattr(queue, "SimpleQueue", Watched)
    began = time.monotonic()
    report = Report(token(), Outcome.succeeded(1), failing, seconds=0.1)
    assert report.submit() == Unconfirmed("deadline", 1, in_flight=False, last_error="no")
    assert 0.1 <= time.monotonic() - began < PATIENCE / 2
    attempt, delay = Watched.waits
    assert 0 < delay < attempt <= 0.1


def test_a_round_that_has_no_time_waits_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()

    def hanging(_claim: UUID, _outcome: Outcome) -> Answer:
        hangs.wait(PATIENCE)
        return Accepted("completed", replayed=False)

    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("no thread")

    monkeypatch.setattr(Watched, "waits", [])
    monkeypatch.setattr(queue, "SimpleQueue", Watched)
    report = Report(token(), Outcome.succeeded(1), hanging, seconds=0)
    assert report.submit() == Unconfirmed("deadline", 1, in_flight=True, last_error=None)
    # What hangs does not keep the process from ending.
    assert [one.daemon for one in threading.enumerate() if one.name == f"report-{report.token}"] == [True]
    hangs.set()
    # An attempt that fails before anybody waits.
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    report = Report(token(), Outcome.succeeded(1), failing, seconds=0)
    assert report.submit() == Unconfirmed("deadline", 1, in_flight=False, last_error="no thread")
    assert Watched.waits == [0.0, 0.0, 0.0]


def test_a_report_that_never_settles_is_unconfirmed_at_the_deadline_and_heard_when_it_does(
    demo: Session, open_session: Open, dsn: str
) -> None:
    run = demo.started()
    claim = demo.claimed(run, "a")
    holder = open_session()
    with holder.connection.transaction():
        holder.execute("select from pgflow.runs where run_id = %s for update", run)
        send = Counting(dsn)
        report = Report(claim, Outcome.succeeded({"x": 1}), send, seconds=0.3)
        began = time.monotonic()
        assert report.submit() == Unconfirmed("deadline", 1, in_flight=True, last_error=None)
        assert 0.3 <= time.monotonic() - began < PATIENCE
        assert report.answer is None
        assert demo.claim_row(claim)["state"] == "active"

    eventually(lambda: report.answer)
    assert report.late == (Accepted("completed", replayed=False),)
    # What came late is the answer; nothing is sent again.
    assert report.submit() == Accepted("completed", replayed=False)
    assert len(send.sent) == 1
    assert demo.work(run)["requested_generation"] == 1


def test_rounds_overlap_without_a_second_settlement(demo: Session, open_session: Open, dsn: str) -> None:
    run = demo.started()
    claim = demo.claimed(run, "a")
    holder = open_session()
    send = Counting(dsn)
    report = Report(claim, Outcome.succeeded([1]), send, seconds=0.1)
    with holder.connection.transaction():
        holder.execute("select from pgflow.runs where run_id = %s for update", run)
        assert isinstance(report.submit(), Unconfirmed)
        assert isinstance(report.submit(), Unconfirmed)
        eventually(
            lambda: demo.value(
                "select count(*) = 2 from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0"
                " and datname = current_database()"
            )
        )
    eventually(lambda: len(report.late) == 2)
    assert sorted(str(answer) for answer in report.late) == [
        str(Accepted("completed", replayed=False)),
        str(Accepted("completed", replayed=True)),
    ]
    assert report.answer == report.late[0], "the first answer stays"
    assert len({(sent, outcome) for sent, outcome in send.sent}) == 1
    assert demo.work(run)["requested_generation"] == 1


@pytest.mark.parametrize("second", ["hangs, too", "has failed"])
def test_a_late_answer_ends_the_round_that_is_under_way(monkeypatch: pytest.MonkeyPatch, second: str) -> None:
    """What was answered is not asked again, whichever round had asked."""
    monkeypatch.setattr(reporter, "FIRST_DELAY", PATIENCE)
    first_may_end, second_may_end = threading.Event(), threading.Event()
    begun: list[int] = []

    def send(_token: UUID, _outcome: Outcome) -> Answer:
        begun.append(len(begun) + 1)
        if begun[-1] == 1:
            first_may_end.wait(PATIENCE)
            return Accepted("completed", replayed=False)
        if second == "has failed":
            raise psycopg.OperationalError("the connection was lost")
        second_may_end.wait(PATIENCE)
        return Accepted("completed", replayed=True)

    report = Report(token(), Outcome.succeeded(1), send, seconds=0.05)
    assert report.submit() == Unconfirmed("deadline", 1, in_flight=True, last_error=None)
    monkeypatch.setattr(report, "_seconds", PATIENCE)
    found: list[Answer | Unconfirmed] = []
    round_2 = threading.Thread(target=lambda: found.append(report.submit()))
    began = time.monotonic()
    round_2.start()
    eventually(lambda: len(begun) == 2)
    first_may_end.set()
    round_2.join(PATIENCE)
    assert found == [Accepted("completed", replayed=False)]
    assert time.monotonic() - began < PATIENCE / 2
    assert begun == [1, 2]
    second_may_end.set()


def test_a_report_that_fails_after_a_real_commit_is_confirmed_by_its_replay(demo: Session, dsn: str) -> None:
    run = demo.started()
    claim = demo.claimed(run, "a")
    send = Counting(dsn, fail_after_commit=1)
    assert Report(claim, Outcome.succeeded(None), send).submit() == Accepted("completed", replayed=True)
    assert len(send.sent) == 2
    assert demo.work(run)["requested_generation"] == 1
    assert demo.task(run, "a")["status"] == "completed"


def test_attempts_that_all_fail_after_a_commit_leave_it_unconfirmed_and_one_settlement(
    demo: Session, dsn: str
) -> None:
    run = demo.started()
    claim = demo.claimed(run, "a")
    send = Counting(dsn, fail_after_commit=5)
    report = Report(claim, Outcome.failed("it broke"), send)
    assert report.submit() == Unconfirmed("attempts", 5, False, "the connection was lost")
    assert demo.run(run)["status"] == "failed"
    assert report.submit() == Accepted("failed", replayed=True)
    assert len(send.sent) == 6
    assert demo.work(run)["requested_generation"] == 1


def test_a_shutdown_ends_a_round_in_flight_and_what_comes_after_is_heard(
    demo: Session, open_session: Open, dsn: str
) -> None:
    run = demo.started()
    claim = demo.claimed(run, "a")
    holder = open_session()
    report = Report(claim, Outcome.succeeded(1), Counting(dsn))
    found: list[Answer | Unconfirmed] = []
    with holder.connection.transaction():
        holder.execute("select from pgflow.runs where run_id = %s for update", run)
        thread = threading.Thread(target=lambda: found.append(report.submit()))
        thread.start()
        eventually(
            lambda: demo.value(
                "select count(*) = 1 from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0"
                " and datname = current_database()"
            )
        )
        report.shut_down()
        thread.join(PATIENCE)
        assert found == [Unconfirmed("shutdown", 1, in_flight=True, last_error=None)]
    eventually(lambda: report.answer)
    assert report.answer == Accepted("completed", replayed=False)


def test_a_shutdown_ends_the_wait_between_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "FIRST_DELAY", PATIENCE)
    tried = threading.Event()

    def send(_claim: UUID, _outcome: Outcome) -> Answer:
        tried.set()
        raise psycopg.OperationalError("no")

    report = Report(token(), Outcome.succeeded(1), send, seconds=PATIENCE)
    found: list[Answer | Unconfirmed] = []
    thread = threading.Thread(target=lambda: found.append(report.submit()))
    thread.start()
    assert tried.wait(PATIENCE)
    report.shut_down()
    thread.join(PATIENCE)
    assert found[0] in (
        Unconfirmed("shutdown", 1, in_flight=False, last_error="no"),
        Unconfirmed("shutdown", 1, in_flight=True, last_error=None),
    )
    assert report.submit() == Unconfirmed("shutdown", 0, in_flight=False, last_error=None)


def test_definite_answers_are_not_asked_for_again(demo: Session, dsn: str) -> None:
    run = demo.started()
    claim = demo.claimed(run, "a")
    demo.complete(claim, 1)
    for given, outcome, answer in (
        (claim, Outcome.succeeded(1), Accepted("completed", replayed=True)),
        (claim, Outcome.succeeded(2), Conflict("succeeded", "completed")),
        (claim, Outcome.failed("x"), Conflict("succeeded", "completed")),
        (token(), Outcome.succeeded(1), Refused("stale", "unknown")),
    ):
        send = Counting(dsn)
        report = Report(given, outcome, send)
        assert report.submit() == answer
        assert report.submit() == answer
        assert len(send.sent) == 1


def test_a_run_that_failed_meanwhile_is_a_terminal_answer(demo: Session, dsn: str) -> None:
    run = demo.started()
    claim = demo.claimed(run, "a")
    demo.expire(claim)
    demo.recover(run, "a", claim)
    demo.fail(demo.claimed(run, "a"))
    assert Report(claim, Outcome.succeeded(1), Counting(dsn)).submit() == Refused("stale", "revoked")


def test_an_executor_does_a_whole_run_with_a_handler_call_a_step(demo: Session, dsn: str) -> None:
    seen: list[tuple[str, object, object]] = []

    def handler(claimed: Claimed) -> object:
        seen.append((claimed.step_slug, claimed.input, claimed.flow_input))
        return {"from": claimed.step_slug}

    run = demo.started(given={"order": 17})
    executor = Executor(demo.connection, Sender(dsn, 10), {"a": handler, "b": handler}, token())
    first = executor.work_one("demo", 30)
    assert not isinstance(first, (NotClaimed, type(None)))
    assert first.answer == Accepted("completed", replayed=False)
    assert executor.work_one("demo", 30) is None
    demo.settle_down(run)
    second = executor.work_one("demo", 30)
    assert not isinstance(second, (NotClaimed, type(None)))
    assert second.answer == Accepted("completed", replayed=False)
    demo.settle_down(run)
    assert seen == [("a", {}, {"order": 17}), ("b", {"a": {"from": "a"}}, None)]
    assert demo.run(run)["output"] == {"b": {"from": "b"}}


class SilentError(Exception):
    """An error that fails when it is asked what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def silent(_claimed: Claimed) -> object:
    raise SilentError


@pytest.mark.parametrize(
    ("handler", "error"),
    [
        (silent, "SilentError"),
        (lambda _claimed: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda _claimed: object(), "TypeError: "),
        (lambda _claimed: "\0", "ValueError: jsonb cannot hold the character U+0000"),
    ],
    ids=["raises what has no text", "raises", "returns no JSON", "returns what jsonb cannot hold"],
)
def test_a_handler_that_fails_fails_the_run(
    demo: Session, dsn: str, handler: Callable[[Claimed], object], error: str
) -> None:
    run = demo.started()
    executor = Executor(demo.connection, Sender(dsn, 10), {"a": handler}, token())
    done = executor.work_one("demo", 30)
    assert not isinstance(done, (NotClaimed, type(None)))
    assert done.answer == Accepted("failed", replayed=False)
    assert demo.task(run, "a")["error_message"].startswith(error)
    assert demo.run(run)["status"] == "failed"


def test_a_message_whose_task_cannot_be_claimed_runs_no_handler(demo: Session, dsn: str) -> None:
    run = demo.started()
    demo.request(run)
    executor = Executor(demo.connection, Sender(dsn, 10), {}, token())
    assert executor.work_one("demo", 30) == NotClaimed("blocked", "pending")


def test_an_executor_passes_over_a_run_that_somebody_has_locked(
    demo: Session, open_session: Open, dsn: str
) -> None:
    locked, free = demo.started(), demo.started()
    executor = executor_of(demo, dsn)
    with open_session().connection.transaction() as held:
        held.connection.execute("select from pgflow.runs where run_id = %s for update", (locked,))
        assert executor.work_one("demo", 0) == NotClaimed("busy", "locked")
        demo.execute("update pgmq.q_demo set vt = now() + interval '1 h' where msg_id = 1")
        done = executor.work_one("demo", 30)
        assert isinstance(done, Executed)
        assert done.claimed.run_id == free
    assert demo.value("select count(*) from pgflow.task_claims where run_id = %s", locked) == 0
    assert demo.value("show lock_timeout") == "0"
    demo.execute("update pgmq.q_demo set vt = now() where msg_id = 1")
    done = executor.work_one("demo", 30)
    assert isinstance(done, Executed)
    assert done.claimed.run_id == locked


def test_an_executor_does_not_do_b_between_its_dispatch_and_the_fixed_point(demo: Session, dsn: str) -> None:
    seen: list[str] = []

    def handler(claimed: Claimed) -> object:
        seen.append(claimed.step_slug)
        return 1

    run = demo.started()
    executor = Executor(demo.connection, Sender(dsn, 10), {"a": handler, "b": handler}, token())
    assert isinstance(executor.work_one("demo", 30), Executed)
    assert demo.reconcile(run)["outcome"] == "dispatched"
    # It reads B's message, again and again, and gets no claim with it.
    for _ in range(2):
        assert executor.work_one("demo", 0) == NotClaimed("blocked", "pending")
    assert seen == ["a"]
    assert demo.value("select count(*) from pgflow.task_claims where step_slug = 'b'") == 0
    assert demo.task(run, "b")["status"] == "queued"
    assert demo.reconcile(run)["outcome"] == "clean"
    assert isinstance(executor.work_one("demo", 30), Executed)
    assert executor.work_one("demo", 0) is None
    assert seen == ["a", "b"]


def test_an_executor_does_nothing_on_a_connection_that_would_leave_claims_uncommitted(
    demo: Session, dsn: str
) -> None:
    run = demo.started()
    with psycopg.connect(dsn) as connection:
        executor = Executor(connection, Sender(dsn, 10), {"a": lambda _claimed: 1}, token())
        with pytest.raises(ValueError, match="autocommit"):
            executor.work_one("demo", 30)
    assert demo.task(run, "a")["status"] == "queued"
    assert executor_of(demo, dsn).work_one("demo", 30) is not None


def executor_of(session: Session, dsn: str) -> Executor:
    """An executor whose handler of a returns 1."""
    return Executor(session.connection, Sender(dsn, 10), {"a": lambda _claimed: 1}, token())


DEEP = '{"x": ' * 5_000 + "1" + "}" * 5_000


@pytest.mark.parametrize(
    "body",
    [
        "5",
        "null",
        '["run_id"]',
        "{}",
        '{"run_id": 5, "step_slug": "a", "task_index": 0}',
        '{"run_id": "%s", "step_slug": null, "task_index": 0}',
        '{"run_id": "%s", "step_slug": "a", "task_index": 0.9}',
        '{"run_id": "%s", "step_slug": "a", "task_index": true}',
        '{"run_id": "%s", "step_slug": "a", "task_index": -1}',
        '{"run_id": "%s", "step_slug": "a", "task_index": 2147483648}',
        '{"run_id": "%s", "step_slug": "a", "task_index": 1e400}',
        DEEP,
    ],
    ids=lambda body: body[:60],
)
def test_a_body_that_is_no_address_of_a_task_is_passed_over(demo: Session, dsn: str, body: str) -> None:
    demo.execute("select pgmq.send('demo', %s::jsonb)", body.replace("%s", str(token())))
    assert executor_of(demo, dsn).work_one("demo", 30) is None


def test_an_attempt_for_which_there_is_no_thread_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_thread(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def unused(_token: UUID, _outcome: Outcome) -> Answer:
        raise AssertionError("there is no thread to call this")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    report = Report(token(), Outcome.succeeded(1), unused, attempts=2)
    assert report.submit() == Unconfirmed("attempts", 2, in_flight=False, last_error="can't start new thread")
