"""Released workers, by the statements that they begin with, on a database with queue identity."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgflow_migrate.worker import Flow

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

OF_0_16_0 = "select pgflow.ensure_flow_compiled(flow_slug => %s, shape => %s::jsonb) as result"
OF_0_15 = (
    "select pgflow.ensure_flow_compiled(flow_slug => %s, shape => %s::jsonb, allow_data_loss => %s) as result"
)


@pytest.fixture
def flow(bench: Bench) -> Flow:
    """A flow that the database knows, with a message waiting."""
    flow = Flow("orders")
    flow.step("load")(print)
    bench.compile(flow)
    bench.start(flow)
    return flow


def begin_0_16_0(connection: psycopg.Connection[Any], flow: Flow) -> None:
    """What a worker of 0.16.0 sends, to its first message; psycopg prepares nothing, as it did not."""
    connection.execute(OF_0_16_0, (flow.slug, Jsonb(flow.shape())), prepare=False)
    connection.execute("select pgflow.track_worker_function(%s)", (flow.slug,))
    worker = "00000000-0000-4000-9000-000000000001"
    connection.execute(
        "insert into pgflow.workers (queue_name, worker_id, function_name) values (%s, %s, %s)",
        (flow.slug, worker, flow.slug),
    )
    connection.execute(
        "select * from pgmq.read_with_poll(queue_name => %s, vt => 5, qty => 10, max_poll_seconds => 2,"
        " poll_interval_ms => 100)",
        (flow.slug,),
    )


def begin_0_15(connection: psycopg.Connection[Any], flow: Flow, allow_data_loss: object) -> None:
    """What a worker of 0.15 sends: it registers its function first, then has the flow compiled."""
    connection.execute("select pgflow.track_worker_function(%s, 'http')", (flow.slug,))
    connection.execute(OF_0_15, (flow.slug, Jsonb(flow.shape()), allow_data_loss))
    pytest.fail("it got past the handshake")


def traces(bench: Bench) -> dict[str, Any]:
    """What a worker that gets going leaves behind."""
    return bench.row(
        "select (select count(*) from pgflow.workers) as workers, max(q.read_ct) as reads,"
        " (select string_agg(status, ',') from pgflow.step_tasks) as tasks from pgmq.q_orders q"
    )


UNTOUCHED = {"workers": 0, "reads": 0, "tasks": "queued"}


def test_the_statements_are_those_that_0_16_0_accepts(bench_at: Any) -> None:
    old = bench_at("core_0_16_0")
    flow = Flow("orders")
    flow.step("load")(print)
    first = old.row(OF_0_16_0, flow.slug, Jsonb(flow.shape()))["result"]
    assert first == {"status": "compiled", "differences": []}
    old.start(flow)
    begin_0_16_0(old.connection, flow)
    assert traces(old) == {"workers": 1, "reads": 1, "tasks": "queued"}


def test_a_0_16_0_worker_is_rejected_before_it_registers_or_reads(bench: Bench, flow: Flow) -> None:
    with psycopg.connect(bench.dsn, autocommit=True) as old_worker:
        with pytest.raises(psycopg.errors.UndefinedFunction) as caught:
            begin_0_16_0(old_worker, flow)
        assert caught.value.sqlstate == "42883"
        assert "pgflow.ensure_flow_compiled" in (caught.value.diag.message_primary or "")
    assert traces(bench) == UNTOUCHED
    assert bench.value("select count(*) from pgflow.worker_functions") == 0


def test_a_0_16_0_worker_of_a_new_flow_is_rejected_and_nothing_is_compiled(bench: Bench) -> None:
    flow = Flow("brand_new")
    flow.step("load")(print)
    with (
        psycopg.connect(bench.dsn, autocommit=True) as worker,
        pytest.raises(psycopg.Error, match="not exist"),
    ):
        begin_0_16_0(worker, flow)
    assert bench.value("select count(*) from pgflow.flows") == 0
    assert bench.value("select count(*) from pgmq.meta") == 0


@pytest.mark.parametrize("allow_data_loss", [False, True, "false"], ids=["boolean", "true", "untyped"])
def test_a_0_15_worker_is_rejected_before_it_registers_or_reads(
    bench: Bench, flow: Flow, allow_data_loss: object
) -> None:
    with psycopg.connect(bench.dsn, autocommit=True) as old_worker:
        with pytest.raises(psycopg.errors.UndefinedFunction) as caught:
            begin_0_15(old_worker, flow, allow_data_loss)
        assert caught.value.sqlstate == "42883"
    assert traces(bench) == UNTOUCHED
    # This release gives its name first, as it does wherever its handshake fails.
    assert bench.value("select start_mode from pgflow.worker_functions") == "http"


@pytest.mark.parametrize(
    ("allow_data_loss", "sqlstate"),
    [("'false'", "PF002"), ("false", "42883"), ("null", "PF002")],
    ids=["untyped", "boolean", "null"],
)
def test_a_third_argument_by_position_is_no_capability(
    bench: Bench, flow: Flow, allow_data_loss: str, sqlstate: str
) -> None:
    call = f"select pgflow.ensure_flow_compiled(%s, %s::jsonb, {allow_data_loss})"
    with pytest.raises(psycopg.Error) as caught:
        bench.rows(call, flow.slug, Jsonb(flow.shape()))
    assert caught.value.sqlstate == sqlstate
    assert traces(bench) == UNTOUCHED
