"""Flows worked off from end to end: inputs, outputs, maps, conditions, routing, concurrency."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from pgflow_migrate.worker import Context, Ending, Flow
from pgflow_migrate.worker.session import Session

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

BEYOND_2_53 = 9007199254740993
FALSY: list[Any] = [None, 0, False, "", [], {}, 0.0]


def test_a_flow_runs_from_its_input_to_its_output(bench: Bench) -> None:
    flow = Flow("Orders")

    @flow.step("load")
    def load(context: Context) -> Any:
        assert context.input == {}
        return context.flow_input["items"]

    @flow.map("charge", depends_on="load")
    def charge(context: Context) -> int:
        amount: int = context.input
        return amount * 10 + context.task_index

    @flow.step("notify", depends_on="load")
    def notify(context: Context) -> int:
        return len(context.input["load"])

    @flow.step("report", depends_on=["notify", "charge"])
    def report(context: Context) -> Any:
        return {"got": context.input, "asked": context.flow_input["who"]}

    bench.compile(flow)
    run = bench.start(flow, {"items": [3, 4], "who": "me"})
    summary = bench.work_off(flow)
    assert (summary.completed, summary.failed, summary.ending) == (5, 0, Ending.IDLE)
    assert bench.run(run)["status"] == "completed"
    assert bench.run(run)["output"] == {"report": {"got": {"notify": 2, "charge": [30, 41]}, "asked": "me"}}
    assert bench.value("select count(*) from pgmq.q_orders") == 0
    assert bench.value("select count(*) from pgmq.a_orders") == 5


def test_a_handler_gets_the_ids_of_its_task(bench: Bench) -> None:
    flow = Flow("CamelCase")
    seen: list[Context] = []
    flow.step("load")(seen.append)
    bench.compile(flow)
    bench.execute(f"alter sequence pgmq.q_camelcase_msg_id_seq restart with {BEYOND_2_53}")
    run = bench.start(flow, {"a": 1})
    bench.work_off(flow)
    (context,) = seen
    assert (context.flow_slug, context.step_slug, context.task_index) == ("CamelCase", "load", 0)
    assert (context.run_id, context.queue_name) == (str(run), "camelcase")
    assert context.msg_id == "9007199254740993"


def test_message_ids_beyond_2_53_are_claimed_completed_failed_and_archived(bench: Bench) -> None:
    flow = Flow("ledger", max_attempts=1)

    @flow.map("post", when_exhausted="skip")
    def post(context: Context) -> int:
        if context.input == 2:
            raise ValueError("no")
        return BEYOND_2_53

    bench.compile(flow)
    bench.execute(f"alter sequence pgmq.q_ledger_msg_id_seq restart with {BEYOND_2_53}")
    good = bench.start(flow, [1, 1])
    bad = bench.start(flow, [2])
    summary = bench.work_off(flow)
    assert (summary.completed, summary.failed) == (2, 1)
    assert bench.run(good)["output"] == {"post": [BEYOND_2_53, BEYOND_2_53]}
    assert bench.step(bad, "post")["status"] == "skipped"
    archived = [row["msg_id"] for row in bench.rows("select msg_id from pgmq.a_ledger order by 1")]
    assert archived == [BEYOND_2_53, BEYOND_2_53 + 1, BEYOND_2_53 + 2]


@pytest.mark.parametrize("output", FALSY, ids=repr)
def test_a_falsy_output_stays_what_it_is(bench: Bench, output: Any) -> None:
    flow = Flow("falsy")
    flow.step("only")(lambda context: output)
    bench.compile(flow)
    run = bench.start(flow)
    bench.work_off(flow)
    row = bench.row("select output, output::text as text from pgflow.step_tasks where run_id = %s", run)
    assert row["text"] is not None
    assert row["output"] == output
    assert type(row["output"]) is type(output) or output == 0.0
    assert bench.run(run)["output"] == {"only": output}


@pytest.mark.parametrize("run_input", FALSY, ids=repr)
def test_a_falsy_flow_input_reaches_the_handler(bench: Bench, run_input: Any) -> None:
    flow = Flow("falsy")
    seen: list[Any] = []
    flow.step("only")(lambda context: seen.append(context.flow_input))
    bench.compile(flow)
    bench.execute("select pgflow.start_flow('falsy', %s::jsonb)", json.dumps(run_input))
    bench.work_off(flow)
    assert seen == [run_input]


def test_falsy_elements_reach_the_handlers_of_a_map(bench: Bench) -> None:
    flow = Flow("falsy")
    flow.map("each")(lambda context: [context.input])
    bench.compile(flow)
    run = bench.start(flow, FALSY)
    bench.work_off(flow)
    assert bench.run(run)["output"] == {"each": [[value] for value in FALSY]}


def test_large_and_odd_values_survive(bench: Bench) -> None:
    flow = Flow("echo")
    flow.step("only")(lambda context: context.flow_input)
    flow.step("again", depends_on="only")(lambda context: context.input["only"])
    value = {
        "text": "x" * 3_000_000,
        "list": list(range(50_000)),
        "whole": [2**53 + 1, -(2**63), 10**40],
        "unicode": "\N{SNOWMAN} \U0001f600 % %s \\ \" ' \u2028",
        "deep": [[[[[{"a": [None, True, 1.5]}]]]]],
    }
    bench.compile(flow)
    run = bench.start(flow, value)
    assert bench.work_off(flow).completed == 2
    assert bench.run(run)["output"] == {"again": value}


def test_a_map_of_many_tasks_keeps_the_order_of_its_elements(bench: Bench) -> None:
    flow = Flow("many")
    flow.map("square")(lambda context: context.input**2)
    flow.map("label", depends_on="square")(lambda context: f"{context.task_index}:{context.input}")
    bench.compile(flow)
    run = bench.start(flow, list(range(60)))
    assert bench.work_off(flow, concurrency=20, batch_size=20).completed == 120
    assert bench.run(run)["output"] == {"label": [f"{n}:{n * n}" for n in range(60)]}


def test_an_empty_map_completes_without_a_task(bench: Bench) -> None:
    flow = Flow("empty_map")
    flow.map("each")(lambda context: pytest.fail("there is no element"))
    flow.step("after", depends_on="each")(lambda context: context.input)
    bench.compile(flow)
    run = bench.start(flow, [])
    assert bench.work_off(flow).completed == 1
    assert bench.run(run)["output"] == {"after": {"each": []}}


@pytest.mark.parametrize(
    ("when_unmet", "run_status", "step_status", "output"),
    [
        ("skip", "completed", {"gift": "skipped", "card": "completed"}, {"card": []}),
        ("skip-cascade", "completed", {"gift": "skipped", "card": "skipped"}, None),
        ("fail", "failed", {"gift": "failed", "card": "created"}, None),
    ],
)
def test_an_unmet_condition_does_what_was_asked_for(
    bench: Bench, when_unmet: str, run_status: str, step_status: dict[str, str], output: Any
) -> None:
    flow = Flow("signup")
    flow.step("gift", if_={"vip": True}, if_not={"banned": True}, when_unmet=when_unmet)(lambda context: 1)
    flow.step("card", depends_on="gift")(lambda context: list(context.input))
    bench.compile(flow)
    lucky = bench.start(flow, {"vip": True})
    unlucky = [bench.start(flow, {"vip": False}), bench.start(flow, {"vip": True, "banned": True})]
    bench.work_off(flow)
    assert bench.run(lucky)["output"] == {"card": ["gift"]}
    for run in unlucky:
        assert (bench.run(run)["status"], bench.run(run)["output"]) == (run_status, output)
        assert {slug: bench.step(run, slug)["status"] for slug in step_status} == step_status


def test_handlers_run_at_the_same_time(bench: Bench) -> None:
    flow = Flow("parallel")
    together = threading.Barrier(5, timeout=20)
    flow.map("each")(lambda context: together.wait() is None)
    bench.compile(flow)
    run = bench.start(flow, [1, 2, 3, 4, 5])
    assert bench.work_off(flow, concurrency=5).completed == 5
    assert bench.run(run)["status"] == "completed"


def test_no_more_is_claimed_than_can_run_at_once(bench: Bench) -> None:
    flow = Flow("narrow")
    begun, go_on = threading.Semaphore(0), threading.Event()

    @flow.map("each")
    def each(context: Context) -> None:
        begun.release()
        assert go_on.wait(20)

    bench.compile(flow)
    bench.start(flow, [1, 2, 3, 4, 5])
    with bench.running(flow, concurrency=2, batch_size=10) as running:
        assert begun.acquire(timeout=20)
        assert begun.acquire(timeout=20)
        statuses = "select status, count(*) from pgflow.step_tasks group by 1 order by 1"
        assert [tuple(row.values()) for row in bench.rows(statuses)] == [("queued", 3), ("started", 2)]
        assert bench.value("select count(*) from pgmq.q_narrow where read_ct > 0") == 2
        go_on.set()
        bench.eventually(lambda: bench.value("select status from pgflow.runs") == "completed", "the run")
        assert running.stop().completed == 5


def test_a_free_thread_works_while_another_is_held_up(bench: Bench) -> None:
    flow = Flow("uneven")
    go_on = threading.Event()

    @flow.map("each")
    def each(context: Context) -> None:
        if context.input == "slow":
            assert go_on.wait(20)

    bench.compile(flow)
    slow = bench.start(flow, ["slow"])
    with bench.running(flow, concurrency=2) as running:
        bench.eventually(lambda: bench.task(slow, "each")["status"] == "started", "the slow one")
        quick = [bench.start(flow, ["quick"]) for _ in range(4)]
        bench.eventually(lambda: all(bench.run(q)["status"] == "completed" for q in quick), "the quick ones")
        assert bench.task(slow, "each")["status"] == "started"
        go_on.set()
        assert running.stop().completed == 5


def test_the_input_of_a_run_is_read_only_when_a_handler_asks_for_it(bench: Bench) -> None:
    flow = Flow("lazy")
    flow.map("each")(lambda context: context.input)
    flow.map("asks", depends_on="each")(lambda context: context.flow_input[context.task_index])
    bench.compile(flow)
    run = bench.start(flow, ["a", "b"])
    bench.work_off(flow)
    assert bench.run(run)["output"] == {"asks": ["a", "b"]}


def test_two_workers_of_a_flow_share_its_tasks(bench: Bench) -> None:
    flow = Flow("shared")
    both = threading.Barrier(2, timeout=20)
    flow.map("each")(lambda context: both.wait() is None)
    bench.compile(flow)
    run = bench.start(flow, [1, 2])
    with bench.running(flow, concurrency=1) as one, bench.running(flow, concurrency=1) as other:
        bench.eventually(lambda: bench.run(run)["status"] == "completed", "the run")
        assert [one.stop().completed, other.stop().completed] == [1, 1]
    workers = {bench.task(run, "each", index)["last_worker_id"] for index in (0, 1)}
    assert {str(worker) for worker in workers} == {one.worker.worker_id, other.worker.worker_id}


def test_workers_of_two_flows_stay_in_their_queues(bench: Bench) -> None:
    flows = [Flow("one"), Flow("Two")]
    done: dict[str, list[str]] = {"one": [], "Two": []}
    for flow in flows:
        flow.step("only")(lambda context: done[context.flow_slug].append(context.queue_name))
        bench.compile(flow)
        bench.start(flow)
    assert [bench.work_off(flow).queue_name for flow in flows] == ["one", "two"]
    assert done == {"one": ["one"], "Two": ["two"]}


def test_nothing_stays_in_the_servers_session(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a transaction pooler needs: any call may land on another server process."""
    flow = Flow("pooled")
    flow.map("each")(lambda context: context.flow_input)
    bench.compile(flow)
    run = bench.start(flow, [1, 2, 3])
    asked: list[tuple[int, int, int]] = []
    plain = Session.call

    def look_first(session: Session, work: Callable[[Any], Any]) -> Any:
        def looking(connection: Any) -> Any:
            row = connection.execute(
                "select (select count(*) from pg_prepared_statements),"
                " (select count(*) from pg_listening_channels()),"
                " (select count(*) from pg_settings"
                " where source = 'session' and name <> 'transaction_isolation')"
            ).fetchone()
            asked.append(row)
            return work(connection)

        value = plain(session, looking)
        session.close()  # as if the next call went through another server process
        return value

    monkeypatch.setattr(Session, "call", look_first)
    assert bench.work_off(flow).completed == 3
    assert bench.run(run)["status"] == "completed"
    assert len(asked) > 10
    assert set(asked) == {(0, 0, 0)}
