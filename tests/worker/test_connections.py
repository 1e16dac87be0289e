"""Lost connections, an unreachable database, lock timeouts: tried again, and nothing counts twice."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgflow_migrate.worker import Context, Ending, Flow, calls
from pgflow_migrate.worker.session import Session

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

Logged = Callable[[int], list[str]]
QUICK: dict[str, Any] = {"first_retry": 0.01, "longest_retry": 0.05, "heartbeat_interval": 0.05}


def plain(bench: Bench, handler: Callable[[Context], Any], **options: Any) -> Flow:
    """A compiled flow of one step."""
    flow = Flow("plain", **options)
    flow.step("only")(handler)
    bench.compile(flow)
    return flow


@contextmanager
def outage(bench: Bench) -> Iterator[None]:
    """Nobody but the bench has a connection, or gets one."""
    name = sql.Identifier(bench.connection.info.dbname)
    with psycopg.connect(make_conninfo(bench.dsn, dbname="postgres"), autocommit=True) as elsewhere:
        elsewhere.execute(sql.SQL("alter database {} with allow_connections false").format(name))
        try:
            bench.terminate_others()
            yield
        finally:
            elsewhere.execute(sql.SQL("alter database {} with allow_connections true").format(name))


def test_a_result_is_reported_after_the_connections_were_cut(bench: Bench) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def handler(context: Context) -> str:
        begun.set()
        assert go_on.wait(30)
        return str(context.flow_input)  # read over a connection that is gone

    flow = plain(bench, handler)
    run = bench.start(flow, 7)
    with bench.running(flow, **QUICK) as running:
        assert begun.wait(30)
        assert bench.terminate_others() >= 2
        go_on.set()
        bench.eventually(lambda: bench.run(run)["status"] == "completed", "the run")
        summary = running.stop()
    assert (summary.completed, summary.unreported) == (1, 0)
    assert bench.run(run)["output"] == {"only": "7"}
    assert bench.task(run, "only")["attempts_count"] == 1


def test_a_worker_goes_on_after_its_polling_connection_was_cut(bench: Bench, logged: Logged) -> None:
    flow = plain(bench, lambda context: None)
    with bench.running(flow, **QUICK) as running:
        cut: set[int] = set()

        def three() -> bool:
            cut.update(
                row["pid"]
                for row in bench.rows(
                    "select pid, pg_terminate_backend(pid) from pg_stat_activity where state = 'active'"
                    " and datname = current_database() and query like '%read_with_poll%'"
                    " and pid <> pg_backend_pid()"
                )
            )
            return len(cut) >= 3

        bench.eventually(three, "three polls, cut one after the other")
        run = bench.start(flow)
        bench.eventually(lambda: bench.run(run)["status"] == "completed", "the run")
        assert running.stop().completed == 1
    failed = [line for line in logged(logging.WARNING) if line.startswith("polling failed, again in 0.0 s: ")]
    assert len(failed) >= 3
    assert "57P01 terminating connection due to administrator command" in failed[0]


def _unreachable(logged: Logged, what: str) -> bool:
    lines = [line for line in logged(logging.WARNING) if line.startswith(what)]
    return any("may not connect to database" in line for line in lines)


def test_a_worker_waits_through_an_outage_and_goes_on(bench: Bench, logged: Logged) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def handler(context: Context) -> str:
        begun.set()
        assert go_on.wait(30)
        return "done"

    flow = plain(bench, handler)
    run = bench.start(flow)
    with bench.running(flow, **QUICK) as running:
        assert begun.wait(30)
        with outage(bench):
            go_on.set()
            for what in ("complete_task for task plain/only/0", "polling failed", "the heartbeat failed"):
                bench.eventually(partial(_unreachable, logged, what), what)
            assert running.alive
        bench.eventually(lambda: bench.run(run)["status"] == "completed", "the run")
        summary = running.stop()
    assert (summary.completed, summary.unreported, summary.ending) == (1, 0, Ending.STOPPED)
    assert bench.worker_row(running.worker)["stopped_at"] is not None


def test_a_worker_that_has_to_leave_in_an_outage_gives_up_in_time_and_says_so(
    bench: Bench, logged: Logged
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def handler(context: Context) -> None:
        begun.set()
        assert go_on.wait(30)

    flow = plain(bench, handler)
    run = bench.start(flow)
    with bench.running(flow, **QUICK, last_reports=0.2) as running:
        assert begun.wait(30)
        with outage(bench):
            running.worker.stop()
            go_on.set()
            summary = running.summary()
    assert (summary.completed, summary.failed, summary.unreported) == (0, 0, 1)
    (line,) = logged(logging.ERROR)
    assert line.startswith(f"task plain/only/0 of run {run} ")
    assert "could not be reported and is left to recovery" in line
    assert [line for line in logged(logging.WARNING) if line.startswith("the worker could not be marked")]
    assert bench.task(run, "only")["status"] == "started"


def test_recovery_gives_an_unreported_task_to_the_next_worker(bench: Bench) -> None:
    flow = plain(bench, lambda context: "second", timeout=1)
    run = bench.start(flow)
    gone = bench.worker(flow)
    with psycopg.connect(bench.dsn, autocommit=True) as connection:
        calls.register(connection, "plain", gone.worker_id, gone.name)
        calls.claim_tasks(connection, "plain", "plain", ["1"], gone.worker_id)
    bench.execute(
        "update pgflow.step_tasks set queued_at = queued_at - interval '1 hour',"
        " started_at = started_at - interval '1 hour'"
    )
    assert bench.value("select pgflow.requeue_stalled_tasks()") == 1
    assert bench.work_off(flow).completed == 1
    task = bench.task(run, "only")
    assert (task["output"], task["attempts_count"], task["requeued_count"]) == ("second", 2, 1)


def losing_the_answer(monkeypatch: pytest.MonkeyPatch, function: str) -> list[int]:
    """The first call of a function is committed, and then its connection is lost; returns who called it."""
    callers: list[int] = []
    call, report = Session.call, getattr(calls, function)

    def noted(*arguments: Any) -> Any:
        value = report(*arguments)
        callers.append(threading.get_ident())
        return value

    def losing(session: Session, work: Callable[[Any], Any]) -> Any:
        first = not callers
        value = call(session, work)
        if first and callers == [threading.get_ident()]:
            session.close()
            raise psycopg.OperationalError("the connection is lost")
        return value

    monkeypatch.setattr(calls, function, noted)
    monkeypatch.setattr(Session, "call", losing)
    return callers


def test_an_output_whose_answer_was_lost_counts_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow("counted")
    flow.map("each")(lambda context: context.input)
    bench.compile(flow)
    run = bench.start(flow, ["a", "b"])
    callers = losing_the_answer(monkeypatch, "complete_task")
    assert bench.work_off(flow, **QUICK, concurrency=1).completed == 2
    assert len(callers) == 3
    assert bench.run(run)["output"] == {"each": ["a", "b"]}


def test_a_failure_whose_answer_was_lost_counts_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    def handler(context: Context) -> str:
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("once")
        return "done"

    flow = plain(bench, handler, max_attempts=2, base_delay=0)
    run = bench.start(flow)
    callers = losing_the_answer(monkeypatch, "fail_task")
    summary = bench.work_off(flow, **QUICK)
    assert (summary.completed, summary.failed, len(callers)) == (1, 1, 2)
    assert bench.task(run, "only")["attempts_count"] == 2


def test_a_claim_that_the_database_undoes_is_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, logged: Logged
) -> None:
    flow = plain(bench, lambda context: None)
    run = bench.start(flow)
    claim, failures = calls.claim_tasks, [psycopg.errors.DeadlockDetected("one"), psycopg.DataError("two")]

    def failing(*arguments: Any) -> Any:
        if failures:
            claim(*arguments)
            raise failures.pop(0)
        return claim(*arguments)

    monkeypatch.setattr(calls, "claim_tasks", failing)
    with bench.running(flow, **QUICK, visibility_timeout=1) as running:
        bench.eventually(lambda: bench.run(run)["status"] == "completed", "the run")
        assert running.stop().completed == 1
    assert bench.task(run, "only")["attempts_count"] == 1
    assert [line.partition(": ")[2] for line in logged(logging.WARNING)] == ["one", "two"]


def test_a_start_that_meets_a_lock_timeout_is_tried_again(bench: Bench, logged: Logged) -> None:
    flow = plain(bench, lambda context: None)
    name = bench.value("select current_database()")
    bench.execute(f"alter database \"{name}\" set lock_timeout = '20ms'")
    holder = psycopg.connect(bench.dsn)
    try:
        holder.execute("select from pgflow.flows for update")
        with bench.running(flow, **QUICK) as running:
            bench.eventually(lambda: len(logged(logging.WARNING)) > 1, "two failures")
            assert bench.value("select count(*) from pgflow.workers") == 0
            holder.rollback()
            run = bench.start(flow)
            bench.eventually(lambda: bench.run(run)["status"] == "completed", "the run")
            assert running.stop().completed == 1
    finally:
        holder.close()
    assert logged(logging.WARNING)[0].startswith("the handshake failed, again in 0.0 s: 55P03 ")


def test_a_session_opens_its_connection_again(bench: Bench) -> None:
    session = Session(bench.dsn)
    first = session.call(lambda connection: connection.info.backend_pid)
    assert session.call(lambda connection: connection.info.backend_pid) == first
    bench.rows("select pg_terminate_backend(%s)", first)
    with pytest.raises(psycopg.OperationalError):
        session.call(lambda connection: connection.execute("select 1"))
    assert session.call(lambda connection: connection.info.backend_pid) != first
    session.close()
    session.close()


def test_a_session_reads_what_was_committed_meanwhile_whatever_the_servers_default(bench: Bench) -> None:
    name = bench.value("select current_database()")
    bench.execute(f"alter database \"{name}\" set default_transaction_isolation = 'serializable'")
    session = Session(bench.dsn)
    level = session.call(lambda connection: connection.execute("show transaction_isolation").fetchone())
    session.close()
    assert level == ("read committed",)
