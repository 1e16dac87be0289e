"""The start: refused before anything is registered or read, or begun in the order of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_COULD_NOT_RUN, PgflowMigrateError
from pgflow_migrate.worker import Ending, Flow, HandshakeError, PausedError

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

NOTHING_REGISTERED = """
select (select count(*) from pgflow.workers) as workers,
  (select count(*) from pgflow.worker_functions) as functions
"""


def orders(*steps: str) -> Flow:
    """A flow of root steps."""
    flow = Flow("Orders")
    for slug in steps:
        flow.step(slug)(lambda context: None)
    return flow


def read_counts(bench: Bench, queue: str) -> list[int]:
    """How often each message was read."""
    return [row["read_ct"] for row in bench.rows(f"select read_ct from pgmq.q_{queue} order by msg_id")]


@pytest.mark.parametrize("revision", ["core_0_15_0", "core_0_15_1", "core_0_16_0"])
def test_a_database_without_queue_identity_is_refused(
    bench_at: Callable[[str], Bench], revision: str
) -> None:
    bench = bench_at(revision)
    bench.rows("select pgflow.create_flow('Orders')")
    bench.rows("select pgflow.add_step('Orders', 'load')")
    bench.start("Orders")
    with pytest.raises(HandshakeError) as caught:
        bench.worker(orders("load")).run()
    assert caught.value.message == "This database's pgflow has no queue identity, which this worker needs."
    assert caught.value.remedy.startswith("Upgrade the database with pgflow-migrate upgrade")
    assert caught.value.exit_code == EXIT_BLOCKED
    assert bench.row(NOTHING_REGISTERED) == {"workers": 0, "functions": 0}
    assert read_counts(bench, "orders") == [0]
    bench.eventually(lambda: not bench.backends(), "its connections are closed")


def test_a_database_without_pgflow_is_refused(bench_at: Callable[[str], Bench]) -> None:
    with pytest.raises(HandshakeError, match="has no queue identity"):
        bench_at("").worker(orders("load")).run()


def test_a_database_that_wants_more_than_the_worker_can_do_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgflow_migrate.worker.calls.CAPABILITIES", {"somethingElse": True})
    with pytest.raises(HandshakeError) as caught:
        bench.worker(orders("load")).run()
    assert caught.value.message == (
        "The database refuses this worker: the worker does not say that it knows queue identity."
    )
    assert caught.value.remedy == "Upgrade pgflow-migrate to the version that the database was upgraded with."
    assert bench.row(NOTHING_REGISTERED) == {"workers": 0, "functions": 0}
    assert bench.value("select count(*) from pgflow.flows") == 0


def test_another_definition_of_the_flow_is_refused_with_the_differences(bench: Bench) -> None:
    bench.compile(orders("load", "pack"))
    bench.start("Orders")
    with pytest.raises(HandshakeError) as caught:
        bench.worker(orders("load", "ship")).run()
    assert caught.value.message == 'The database has another definition of flow "Orders".'
    assert caught.value.details == ("Step at index 1: slug differs 'ship' vs 'pack'",)
    assert bench.row(NOTHING_REGISTERED) == {"workers": 0, "functions": 0}
    assert read_counts(bench, "orders") == [0, 0]
    assert [row["step_slug"] for row in bench.rows("select step_slug from pgflow.steps order by 1")] == [
        "load",
        "pack",
    ]


def test_a_queue_of_somebody_else_is_not_adopted(bench: Bench) -> None:
    bench.rows("select pgmq.create('orders')")
    with pytest.raises(HandshakeError, match=r'^Flow "Orders" could not be compiled: 55000 ') as caught:
        bench.worker(orders("load")).run()
    assert caught.value.exit_code == EXIT_BLOCKED
    assert bench.value("select count(*) from pgflow.flows") == 0
    assert bench.row(NOTHING_REGISTERED) == {"workers": 0, "functions": 0}


def test_a_flow_whose_slug_differs_in_case_only_is_refused(bench: Bench) -> None:
    bench.compile(orders("load"))
    with pytest.raises(HandshakeError, match=r'^Flow "ORDERS" could not be compiled: ') as caught:
        bench.worker(Flow("ORDERS")).run()
    assert caught.value.exit_code == EXIT_BLOCKED


def test_missing_rights_are_told_and_are_no_refusal(bench: Bench) -> None:
    bench.execute("alter function pgflow.ensure_flow_compiled(text, jsonb, jsonb) security definer")
    bench.execute("alter function pgflow.ensure_flow_compiled(text, jsonb, jsonb) owner to anon")
    with pytest.raises(PgflowMigrateError, match=r"could not be compiled: 42501 permission denied") as caught:
        bench.worker(orders("load")).run()
    assert caught.value.exit_code == EXIT_COULD_NOT_RUN


def test_a_server_that_is_not_there_is_told_at_once(bench: Bench) -> None:
    bench.dsn = "host=127.0.0.1 port=1 dbname=none"
    with pytest.raises(PgflowMigrateError) as caught:
        bench.worker(orders("load")).run()
    assert caught.value.message == "No server listens at 127.0.0.1:1."


def test_the_first_worker_compiles_the_flow_and_a_second_one_verifies_it(
    bench: Bench, logged: Callable[[int], list[str]]
) -> None:
    first, second = bench.worker(orders("load")), bench.worker(orders("load"))
    assert first.run().ending is Ending.IDLE
    assert second.run().ending is Ending.IDLE
    assert logged(20)[:2] == [
        f"worker {first.worker_id} of function Orders-worker: flow Orders compiled, queue orders",
        f"worker {second.worker_id} of function Orders-worker: flow Orders verified, queue orders",
    ]


def test_a_worker_is_registered_as_a_process_on_the_canonical_queue(bench: Bench) -> None:
    worker = bench.worker(orders("load"), name="my function")
    worker.run()
    row = bench.worker_row(worker)
    assert (row["queue_name"], row["function_name"]) == ("orders", "my function")
    assert row["deprecated_at"] is None
    assert row["stopped_at"] >= row["last_heartbeat_at"] >= row["started_at"]
    assert bench.row("select function_name, start_mode, enabled from pgflow.worker_functions") == {
        "function_name": "my function",
        "start_mode": "process",
        "enabled": True,
    }


@pytest.mark.parametrize(
    ("at", "since"),
    [("2030-01-02 03:04:05+00", "2030-01-02 03:04:05 UTC"), ("infinity", "infinity")],
)
def test_the_worker_of_a_paused_function_does_not_start(bench: Bench, at: str, since: str) -> None:
    bench.rows("select pgflow.track_worker_function('it''s mine', 'process')")
    bench.execute(f"update pgflow.worker_functions set pause_reason = 'It is wrong.', paused_at = '{at}'")
    bench.compile(orders("load"))
    bench.start("Orders")
    with pytest.raises(PausedError) as caught:
        bench.worker(orders("load"), name="it's mine").run()
    assert caught.value.message == f'Worker function "it\'s mine" is paused since {since}: It is wrong.'
    assert caught.value.remedy == "When that is mended: select pgflow.resume_worker_function('it''s mine');"
    assert caught.value.exit_code == EXIT_BLOCKED
    assert read_counts(bench, "orders") == [0]
    bench.rows(caught.value.remedy.partition(": ")[2])
    assert bench.worker(orders("load"), name="it's mine").run().completed == 1


def test_a_flow_without_steps_has_a_queue_and_a_worker(bench: Bench) -> None:
    summary = bench.work_off(Flow("nothingToDo"))
    assert (summary.queue_name, summary.ending) == ("nothingtodo", Ending.IDLE)
    assert bench.value("select queue_name from pgmq.list_queues()") == "nothingtodo"
