"""Messages that are not what they should be: foreign ones are passed over, doubtful ones stop the worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgflow_migrate.worker import Context, Ending, Flow, PausedError, calls
from pgflow_migrate.worker.claims import RefusedMessage

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

Logged = Callable[[int], list[str]]
BODY = "what-the-body-says"


def orders(handler: Callable[[Context], Any] = lambda context: None) -> Flow:
    """A flow of one map step."""
    flow = Flow("orders")
    flow.map("load")(handler)
    return flow


def send(bench: Bench, body: dict[str, Any]) -> int:
    """Put a message into the queue past pgflow; returns its id."""
    msg_id: int = bench.value("select pgmq.send('orders', %s)", Jsonb(body))
    return msg_id


def doubtful(bench: Bench) -> int:
    """A message that looks like pgflow's and has no task."""
    return send(
        bench, {"flow_slug": "orders", "run_id": "x", "step_slug": "load", "task_index": 0, "note": BODY}
    )


def test_foreign_messages_are_archived_with_one_warning_of_their_ids(bench: Bench, logged: Logged) -> None:
    flow = orders()
    bench.compile(flow)
    foreign = [send(bench, {"card": BODY}), send(bench, {"card": BODY})]
    run = bench.start(flow, [1])
    summary = bench.work_off(flow)
    assert (summary.completed, summary.ending) == (1, Ending.IDLE)
    assert bench.run(run)["status"] == "completed"
    assert logged(logging.WARNING) == ["queue orders held messages that are not pgflow's; archived: 1, 2"]
    archived = bench.rows("select msg_id from pgmq.a_orders where message ? 'card' order by 1")
    assert [row["msg_id"] for row in archived] == foreign == [1, 2]


def test_a_message_of_a_finished_task_is_archived_and_one_of_a_claimed_task_deferred(
    bench: Bench, logged: Logged
) -> None:
    flow = orders()
    bench.compile(flow)
    bench.start(flow, [1, 2, 3])
    bench.execute("update pgflow.step_tasks set status = 'started', started_at = now() where task_index = 0")
    bench.execute("update pgflow.step_tasks set status = 'cancelled' where task_index = 1")
    summary = bench.work_off(flow, concurrency=1)
    assert summary.completed == 1
    assert bench.value("select array_agg(msg_id) from pgmq.q_orders") == [1]
    assert bench.value("select attempts_count from pgflow.step_tasks where task_index = 0") == 0
    assert logged(logging.WARNING) == []
    assert "queue orders: deferred: 1" in logged(logging.DEBUG)
    assert "queue orders: archived: 2" in logged(logging.DEBUG)


def test_a_task_that_another_session_holds_is_claimed_later_and_the_worker_waits_for_it(
    bench: Bench, logged: Logged
) -> None:
    flow = orders()
    bench.compile(flow)
    run = bench.start(flow, [1])
    with psycopg.connect(bench.dsn) as holder:
        holder.execute("select from pgflow.step_tasks for update")
        with bench.running(flow, until_idle=0.01, visibility_timeout=2) as running:
            bench.eventually(lambda: "queue orders: busy: 1" in logged(logging.DEBUG), "the claim")
            holder.rollback()
            summary = running.summary()
    assert (summary.completed, summary.ending) == (1, Ending.IDLE)
    assert bench.task(run, "load")["attempts_count"] == 1


def test_a_fatal_batch_stops_the_worker_with_one_error_and_nothing_is_claimed(
    bench: Bench, logged: Logged
) -> None:
    flow = orders(lambda context: pytest.fail("nothing may be claimed"))
    bench.compile(flow)
    bench.start(flow, [BODY, BODY])
    bad = doubtful(bench)
    foreign = send(bench, {"card": BODY})
    tasks = bench.rows("select * from pgflow.step_tasks order by task_index")
    worker = bench.worker(flow, until_idle=None)
    summary = worker.run()

    assert summary.ending is Ending.FATAL
    assert (summary.completed, summary.failed, summary.unreported) == (0, 0, 0)
    assert summary.fatal is not None
    assert summary.fatal.messages == (RefusedMessage(str(bad), "missing_task"),)
    assert (summary.fatal.message_count, summary.fatal.paused_function) == (1, "orders-worker")

    assert bench.rows("select * from pgflow.step_tasks order by task_index") == tasks
    assert bench.value("select count(*) from pgmq.a_orders") == 0
    assert bench.value("select array_agg(msg_id order by msg_id) from pgmq.q_orders where vt <= now()") == [
        1,
        2,
        bad,
        foreign,
    ]
    assert bench.worker_row(worker)["stopped_at"] is not None

    (line,) = logged(logging.ERROR)
    assert line == (
        f'worker {worker.worker_id} of queue orders stops: queue "orders" has work that flow "orders" cannot'
        " account for: 1 message, 3 (missing_task); nothing was claimed; function orders-worker is paused"
        " until: select pgflow.resume_worker_function('orders-worker');"
    )
    everything = [line for level in (10, 20, 30, 40) for line in logged(level)]
    assert not [line for line in everything if BODY in line]


def test_a_fatal_batch_names_twenty_messages_and_counts_the_rest(bench: Bench, logged: Logged) -> None:
    flow = orders()
    bench.compile(flow)
    for _ in range(25):
        doubtful(bench)
    summary = bench.work_off(flow, batch_size=30, concurrency=30)
    assert summary.fatal is not None
    assert (len(summary.fatal.messages), summary.fatal.message_count) == (20, 25)
    (line,) = logged(logging.ERROR)
    assert ": 25 messages, 1 (missing_task), 2 (missing_task), " in line
    assert ", 20 (missing_task), ...; nothing was claimed" in line


def test_handlers_that_run_when_a_fatal_batch_comes_are_finished(bench: Bench) -> None:
    go_on = threading.Event()
    flow = orders(lambda context: go_on.wait(20))
    bench.compile(flow)
    run = bench.start(flow, [1])
    with bench.running(flow, concurrency=2) as running:
        bench.eventually(lambda: bench.task(run, "load")["status"] == "started", "the claim")
        doubtful(bench)
        paused = "select count(*) from pgflow.worker_functions where paused_at is not null"
        bench.eventually(lambda: bench.value(paused), "the pause")
        assert running.alive
        go_on.set()
        summary = running.summary()
    assert (summary.ending, summary.completed) == (Ending.FATAL, 1)
    assert bench.run(run)["status"] == "completed"


def test_a_fatal_batch_counts_as_one_when_the_worker_is_told_to_stop_meanwhile(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = orders()
    bench.compile(flow)
    doubtful(bench)
    worker = bench.worker(flow, until_idle=None)
    claim = calls.claim_tasks

    def stopped_while_claiming(*arguments: Any) -> Any:
        worker.stop()
        return claim(*arguments)

    monkeypatch.setattr(calls, "claim_tasks", stopped_while_claiming)
    assert worker.run().ending is Ending.FATAL


def test_a_worker_starts_again_after_the_repair_and_the_resumption(bench: Bench) -> None:
    flow = orders()
    bench.compile(flow)
    run = bench.start(flow, [1])
    bad = doubtful(bench)
    assert bench.work_off(flow).ending is Ending.FATAL
    with pytest.raises(PausedError, match='"orders-worker" is paused since'):
        bench.work_off(flow)
    bench.rows("select pgmq.archive('orders', %s::bigint)", bad)
    with pytest.raises(PausedError):
        bench.work_off(flow)
    assert bench.value("select pgflow.resume_worker_function('orders-worker')") is True
    assert bench.work_off(flow).completed == 1
    assert bench.run(run)["status"] == "completed"


def test_a_flow_that_is_deleted_under_its_worker_leaves_no_worker_behind(
    bench: Bench, logged: Logged
) -> None:
    flow = orders()
    bench.compile(flow)
    with bench.running(flow, first_retry=0.01) as running:
        row = "select count(*) from pgflow.workers"
        bench.eventually(lambda: bench.value(row), "the registration")
        bench.execute("select pgflow.delete_flow_and_data('orders')")
        bench.eventually(lambda: logged(logging.WARNING), "the failing poll")
        assert "42P01" in logged(logging.WARNING)[0]
        assert running.alive  # the flow may be compiled again
        bench.compile(flow)
        run = bench.start(flow, [1])
        bench.eventually(lambda: bench.run(run)["status"] == "completed", "the run of the new flow")
        assert running.stop().completed == 1


def test_a_flow_that_is_replaced_by_another_of_its_queue_is_a_wrong_subscription(
    bench: Bench, logged: Logged
) -> None:
    flow = orders()
    bench.compile(flow)
    with bench.running(flow, first_retry=0.01) as running:
        bench.eventually(lambda: bench.value("select count(*) from pgflow.workers"), "the registration")
        bench.execute("select pgflow.delete_flow_and_data('orders')")
        other = Flow("Orders")
        other.step("pack")(print)
        bench.compile(other)
        run = bench.start(other)
        assert running.summary().ending is Ending.FATAL
    (line,) = logged(logging.ERROR)
    assert ' of queue orders stops: flow "orders" does not exist; nothing was claimed; ' in line
    assert bench.task(run, "pack")["status"] == "queued"
