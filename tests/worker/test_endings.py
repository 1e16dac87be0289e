"""How a worker leaves: told to, deprecated, forgotten; and what it leaves behind."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgflow_migrate.worker import Context, Ending, Flow, calls

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

Logged = Callable[[int], list[str]]


class Gate:
    """Handlers that wait until the test lets them go on."""

    def __init__(self) -> None:
        self._entered = threading.Semaphore(0)
        self._open = threading.Event()

    def handler(self, context: Context) -> str:
        self._entered.release()
        assert self._open.wait(30), "the gate stayed closed"
        return "through"

    def entered(self, times: int = 1) -> None:
        """Wait until so many more handlers have begun."""
        for _ in range(times):
            assert self._entered.acquire(timeout=30), "no handler begins"

    def open(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Gate:
    """Closed to begin with."""
    return Gate()


def gated(gate: Gate, bench: Bench) -> Flow:
    """A compiled flow of one map step behind a gate."""
    flow = Flow("gated")
    flow.map("each")(gate.handler)
    bench.compile(flow)
    return flow


def test_a_stopped_worker_finishes_what_runs_and_begins_nothing(bench: Bench, gate: Gate) -> None:
    flow = gated(gate, bench)
    running_one = bench.start(flow, [1])
    with bench.running(flow, concurrency=1) as running:
        gate.entered()
        waiting = bench.start(flow, [2])
        running.worker.stop()
        assert running.alive
        assert bench.worker_row(running.worker)["stopped_at"] is None
        gate.open()
        summary = running.summary()
    assert (summary.ending, summary.completed) == (Ending.STOPPED, 1)
    assert bench.run(running_one)["output"] == {"each": ["through"]}
    assert bench.task(waiting, "each")["status"] == "queued"
    assert bench.value("select read_ct from pgmq.q_gated") == 0
    assert bench.worker_row(running.worker)["stopped_at"] is not None
    bench.eventually(lambda: not bench.backends(), "its connections are closed")


def test_a_deprecated_worker_finishes_what_runs_and_leaves(bench: Bench, gate: Gate, logged: Logged) -> None:
    flow = gated(gate, bench)
    run = bench.start(flow, [1])
    with bench.running(flow, heartbeat_interval=0.05) as running:
        gate.entered()
        bench.execute("update pgflow.workers set deprecated_at = now()")
        leaves = f"worker {running.worker.worker_id} leaves: it is deprecated"
        bench.eventually(lambda: leaves in logged(logging.INFO), "the worker notices")
        gate.open()
        summary = running.summary()
    assert (summary.ending, summary.completed) == (Ending.DISMISSED, 1)
    assert bench.run(run)["status"] == "completed"


def test_a_worker_whose_row_is_gone_leaves(bench: Bench, gate: Gate, logged: Logged) -> None:
    flow = gated(gate, bench)
    with bench.running(flow, heartbeat_interval=0.05) as running:
        bench.eventually(lambda: bench.execute("delete from pgflow.workers"), "the registration")
        assert running.summary().ending is Ending.DISMISSED
    assert f"worker {running.worker.worker_id} leaves: its row in pgflow.workers is gone" in logged(20)


def test_a_worker_that_is_deprecated_when_it_begins_reads_nothing(
    bench: Bench, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = gated(gate, bench)
    bench.start(flow, [1])
    register = calls.register

    def register_and_deprecate(connection: Any, queue_name: str, worker_id: str, name: str) -> None:
        register(connection, queue_name, worker_id, name)
        connection.execute("update pgflow.workers set deprecated_at = now()")

    monkeypatch.setattr(calls, "register", register_and_deprecate)
    assert bench.work_off(flow, until_idle=None).ending is Ending.DISMISSED
    assert bench.value("select read_ct from pgmq.q_gated") == 0


def test_heartbeats_go_on_while_a_handler_runs_and_while_the_worker_drains(bench: Bench, gate: Gate) -> None:
    flow = gated(gate, bench)
    bench.start(flow, [1])
    with bench.running(flow, concurrency=1, heartbeat_interval=0.05) as running:
        gate.entered()

        def beats(times: int) -> None:
            seen: set[Any] = set()

            def enough() -> bool:
                seen.add(bench.worker_row(running.worker)["last_heartbeat_at"])
                return len(seen) > times

            bench.eventually(enough, "heartbeats")

        beats(3)
        running.worker.stop()
        beats(3)
        gate.open()
        running.summary()


def test_a_worker_lives_on_when_heartbeats_fail(bench: Bench, gate: Gate, logged: Logged) -> None:
    flow = gated(gate, bench)
    gate.open()
    bench.execute("alter table pgflow.workers rename column last_heartbeat_at to beat")
    with bench.running(flow, heartbeat_interval=0.05) as running:
        bench.eventually(lambda: logged(logging.WARNING), "the failure")
        assert logged(logging.WARNING)[0].startswith("the heartbeat failed: 42703 ")
        run = bench.start(flow, [1])
        bench.eventually(lambda: bench.run(run)["status"] == "completed", "the run")
        assert running.stop().completed == 1


def test_a_worker_leaves_when_it_is_idle_and_not_before(bench: Bench) -> None:
    flow = Flow("chain")
    flow.step("first")(lambda context: None)
    flow.step("second", depends_on="first")(lambda context: None)
    bench.compile(flow)
    run = bench.start(flow)
    summary = bench.work_off(flow, until_idle=0.01)
    assert (summary.ending, summary.completed) == (Ending.IDLE, 2)
    assert bench.run(run)["status"] == "completed"


def test_a_running_handler_is_not_idleness(bench: Bench, gate: Gate) -> None:
    flow = gated(gate, bench)
    run = bench.start(flow, [1])
    with bench.running(flow, until_idle=0.01, poll_interval=5) as running:
        gate.entered()
        polls: set[Any] = set()

        def three() -> bool:
            polls.update(
                row["query_start"]
                for row in bench.rows(
                    "select query_start from pg_stat_activity where datname = current_database()"
                    " and state = 'active' and query like '%read_with_poll%' and pid <> pg_backend_pid()"
                )
            )
            return len(polls) >= 3

        bench.eventually(three, "three polls, of which two came back empty")
        assert running.alive
        gate.open()
        summary = running.summary()
    assert (summary.ending, summary.completed) == (Ending.IDLE, 1)
    assert bench.run(run)["status"] == "completed"


def test_messages_that_come_as_the_worker_is_told_to_stop_are_given_back(
    bench: Bench, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = gated(gate, bench)
    bench.start(flow, [1, 2])
    worker = bench.worker(flow, until_idle=None, visibility_timeout=600)
    read = calls.read_messages

    def read_and_stop(*arguments: Any, **named: Any) -> tuple[str, ...]:
        found = read(*arguments, **named)
        assert found == ("1", "2")
        worker.stop()
        return found

    monkeypatch.setattr(calls, "read_messages", read_and_stop)
    assert worker.run().ending is Ending.STOPPED
    assert bench.value("select array_agg(status) from pgflow.step_tasks") == ["queued", "queued"]
    assert bench.value("select array_agg(attempts_count) from pgflow.step_tasks") == [0, 0]
    assert bench.value("select count(*) from pgmq.q_gated where vt <= clock_timestamp() and read_ct = 1") == 2


def test_messages_of_a_claim_that_failed_are_given_back_when_the_worker_stops(
    bench: Bench, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = gated(gate, bench)
    bench.start(flow, [1])
    worker = bench.worker(flow, until_idle=None, visibility_timeout=600)

    def fail(*arguments: Any) -> None:
        worker.stop()
        raise psycopg.errors.DeadlockDetected("deadlock")

    monkeypatch.setattr(calls, "claim_tasks", fail)
    worker.run()
    assert bench.value("select count(*) from pgmq.q_gated where vt <= clock_timestamp() and read_ct = 1") == 1


def test_a_worker_that_was_stopped_before_it_ran_reads_nothing(bench: Bench, gate: Gate) -> None:
    flow = gated(gate, bench)
    bench.start(flow, [1])
    worker = bench.worker(flow, until_idle=None)
    worker.stop()
    assert worker.run().ending is Ending.STOPPED
    assert bench.value("select read_ct from pgmq.q_gated") == 0


def test_a_fault_of_the_worker_itself_lets_handlers_finish_and_is_raised(
    bench: Bench, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = gated(gate, bench)
    run = bench.start(flow, [1])
    with bench.running(flow, concurrency=2) as running:
        gate.entered()

        def broken(*arguments: Any, **named: Any) -> None:
            raise ZeroDivisionError("a fault")

        monkeypatch.setattr(calls, "read_messages", broken)
        gate.open()
        with pytest.raises(ZeroDivisionError, match="a fault"):
            running.summary()
    assert bench.run(run)["status"] == "completed"
    assert bench.worker_row(running.worker)["stopped_at"] is not None
