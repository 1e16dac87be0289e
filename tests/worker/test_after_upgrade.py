"""Populated 0.16.0 databases upgraded with work that somebody has claimed, finished in Python.

What old workers had claimed when the upgrade came ends in one of two ways. Either they have left as HTTP
workers do, marked as stopped while their last handlers run, which report to the upgraded database. Or they
have died, and recovery gives their tasks out again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pgflow_migrate import resources
from pgflow_migrate.replay.scenario import Scenario, load_all
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import attach_queues_to_extension
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.worker import Context, Ending, Flow, Summary

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

SCENARIOS = [
    s
    for s in load_all(resources.fixtures(), ["0.16.0"])
    if s.upgrade == "succeeds" and ("start_tasks" in s.populate or s.name in ("camel_case", "many_flows"))
]

CALLBACKS, RECOVERY = "their handlers report", "recovery gives them out"

# The two differ only where something is claimed.
CASES = [
    pytest.param(scenario, how, id=f"{scenario.name}: {how}")
    for scenario in SCENARIOS
    for how in (CALLBACKS, RECOVERY)
    if how == CALLBACKS or "start_tasks" in scenario.populate
]

# What nobody can finish: scenario, how, the run's last digit.
UNFINISHED = {
    ("stalled_tasks", RECOVERY): {"1"},  # stalled for the fourth time: recovery has given it up
    ("null_message_ids", RECOVERY): {"3"},  # claimed, and its message was deleted by hand
}
STARTED = (
    "select run_id, step_slug, task_index from pgflow.step_tasks where status = 'started' order by 1, 2, 3"
)


def populate(bench: Bench, scenario: Scenario) -> None:
    """As a replay does."""
    bench.connection.execute(scenario.populate.encode())
    if scenario.setup.extension_members:
        attach_queues_to_extension(bench.connection, *scenario.setup.extension_members)
    bench.execute("discard all")


def workers_leave(bench: Bench, how: str) -> None:
    """What the operator waits for before the upgrade."""
    if how == CALLBACKS:
        bench.rows("select pgflow.mark_worker_stopped(worker_id) from pgflow.workers")
    else:
        bench.execute("update pgflow.workers set last_heartbeat_at = now() - interval '1 hour'")


def report_what_is_claimed(bench: Bench) -> None:
    """The callbacks of 0.16.0 workers, by their named arguments."""
    for task in bench.rows(STARTED):
        bench.rows(
            "select * from pgflow.complete_task(run_id => %s, step_slug => %s, task_index => %s,"
            """ output => '["one", "two"]'::jsonb)""",
            *task.values(),
        )


def recover_what_is_claimed(bench: Bench) -> None:
    """Time passes, and cron calls."""
    bench.execute(
        "update pgflow.step_tasks set queued_at = queued_at - interval '1 day',"
        " started_at = started_at - interval '1 day' where status = 'started'"
    )
    bench.rows("select pgflow.requeue_stalled_tasks()")


def queues(bench: Bench) -> list[str]:
    """The queues of the flows, by their canonical names."""
    return [row["q"] for row in bench.rows("select lower(flow_slug) as q from pgflow.flows order by 1")]


def let_delays_pass(bench: Bench) -> None:
    """Start delays and waits before the next attempt are over."""
    for queue in queues(bench):
        bench.execute(f"update pgmq.q_{queue} set vt = clock_timestamp() where vt > clock_timestamp()")


def stored_flows(bench: Bench, handler: Callable[[Context], Any]) -> list[Flow]:
    """A Python flow for each that the database has."""
    rows = bench.rows(
        "select flow_slug, pgflow._get_flow_shape(flow_slug) as shape from pgflow.flows order by 1"
    )
    return [Flow.from_shape(row["flow_slug"], row["shape"], handler) for row in rows]


def work_off(bench: Bench, flows: list[Flow]) -> list[Summary]:
    """A worker for each flow, several at a time; 3 connections each."""
    with ThreadPoolExecutor(12) as pool:
        return list(pool.map(lambda flow: bench.work_off(flow, poll_interval=100, concurrency=4), flows))


@pytest.mark.parametrize(("scenario", "how"), CASES)
def test_work_in_flight_is_finished_after_the_upgrade(
    bench_at: Callable[[str], Bench], templates: Templates, scenario: Scenario, how: str
) -> None:
    if scenario.setup.pgmq not in (None, templates.pgmq):
        pytest.skip(f"the scenario needs PGMQ as {scenario.setup.pgmq}; here it is {templates.pgmq}")
    bench = bench_at("core_0_16_0")
    populate(bench, scenario)
    over = "select * from pgflow.step_tasks where status not in ('queued', 'started') order by 1, 2, 3, 5"
    history = bench.rows(over)
    workers_leave(bench, how)
    upgrade(bench.dsn)

    (report_what_is_claimed if how == CALLBACKS else recover_what_is_claimed)(bench)
    let_delays_pass(bench)
    before = bench.value("select count(*) from pgflow.step_tasks where status = 'completed'")
    routes: set[tuple[str, str]] = set()

    def handler(context: Context) -> list[str]:
        routes.add((context.flow_slug, context.queue_name))
        return ["one", "two"]  # an array, so that a map behind it has elements

    flows = stored_flows(bench, handler)
    summaries = work_off(bench, flows)

    # Only a run that a condition fails while another of its handlers runs can make an output late.
    if scenario.name != "skipped_and_cancelled":
        assert sum(summary.late for summary in summaries) == 0
    assert [summary.ending for summary in summaries] == [Ending.IDLE] * len(flows)
    assert sum(summary.failed + summary.unreported for summary in summaries) == 0
    after = bench.value("select count(*) from pgflow.step_tasks where status = 'completed'")
    assert sum(summary.completed for summary in summaries) == after - before
    assert all(queue == slug.lower() for slug, queue in routes)

    unfinished = bench.rows("select run_id from pgflow.runs where status = 'started'")
    assert {str(row["run_id"])[-1] for row in unfinished} == UNFINISHED.get((scenario.name, how), set())
    live = bench.rows("select distinct run_id from pgflow.step_tasks where status in ('queued', 'started')")
    assert live == unfinished
    for queue in queues(bench):
        assert bench.value(f"select count(*) from pgmq.q_{queue}") == 0
    now = {tuple(row[key] for key in ("run_id", "step_slug", "task_index")): row for row in bench.rows(over)}
    for row in history:
        kept = now[row["run_id"], row["step_slug"], row["task_index"]]
        assert {key: kept[key] for key in row} == row
        assert kept["queue_name"] == row["flow_slug"].lower()


def test_there_are_scenarios_that_can_be_upgraded() -> None:
    assert len(SCENARIOS) >= 14


def test_a_run_that_began_before_the_upgrade_ends_with_the_outputs_of_both_workers(
    bench_at: Callable[[str], Bench],
) -> None:
    bench = bench_at("core_0_16_0")
    bench.rows("select pgflow.create_flow('orderIntake')")
    bench.rows("select pgflow.add_step('orderIntake', 'read')")
    bench.rows("select pgflow.add_step('orderIntake', 'pack', array['read'], step_type => 'map')")
    bench.rows("select pgflow.add_step('orderIntake', 'send', array['pack'])")
    run = bench.start("orderIntake", {"n": 3})
    worker = "00000000-0000-4000-9000-000000000001"
    bench.execute(
        "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, 'orderIntake', 'old')",
        worker,
    )
    claim = "select * from pgflow.start_tasks('orderIntake', array[%s], %s)"
    assert bench.row(claim, 1, worker)["flow_input"] == {"n": 3}
    bench.rows("select * from pgflow.complete_task(%s, 'read', 0, '[10, 20, 30]')", run)
    assert bench.row(claim, 2, worker)["input"] == 10
    workers_leave(bench, CALLBACKS)
    upgrade(bench.dsn)

    # The old worker's handler ends after the upgrade.
    bench.rows("""select * from pgflow.complete_task(%s, 'pack', 0, '"by the old one"')""", run)
    flow = Flow("orderIntake")
    flow.step("read")(lambda context: pytest.fail("this step is over"))
    flow.map("pack", depends_on="read")(lambda context: context.input)
    flow.step("send", depends_on="pack")(lambda context: [context.input["pack"], context.flow_input["n"]])
    assert bench.work_off(flow).completed == 3
    assert bench.run(run)["output"] == {"send": [["by the old one", 20, 30], 3]}


def test_the_upgraded_database_takes_a_flow_that_it_has_never_seen(bench_at: Callable[[str], Bench]) -> None:
    bench = bench_at("core_0_16_0")
    (scenario,) = [scenario for scenario in SCENARIOS if scenario.name == "every_status"]
    populate(bench, scenario)
    workers_leave(bench, CALLBACKS)
    upgrade(bench.dsn)
    fresh = Flow("brandNew")
    fresh.map("each")(lambda context: [context.input, context.queue_name])
    summary = bench.work_off(fresh)
    assert (summary.queue_name, summary.completed) == ("brandnew", 0)
    run = bench.start(fresh, [1, 2])
    assert bench.work_off(fresh).completed == 2
    assert bench.run(run)["output"] == {"each": [[1, "brandnew"], [2, "brandnew"]]}
    assert (
        bench.value("select count(*) from pgflow.runs where flow_slug = 'orders' and status = 'started'") == 4
    )
