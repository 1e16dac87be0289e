"""Handlers that fail, outputs that are none, reports that the database refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgflow_migrate.worker import Context, Flow, calls
from pgflow_migrate.worker.claims import Claimed, ClaimedTask
from pgflow_migrate.worker.reports import NoJsonError, error_text, to_json

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

Logged = Callable[[int], list[str]]


def raising(error: BaseException) -> Callable[[Context], None]:
    """A handler that raises."""

    def handler(context: Context) -> None:
        raise error

    return handler


def test_a_failed_attempt_is_repeated_and_the_task_completes(bench: Bench, logged: Logged) -> None:
    flow = Flow("flaky", max_attempts=3, base_delay=0)
    attempts: list[int] = []

    @flow.step("only")
    def only(context: Context) -> str:
        attempts.append(1)
        if len(attempts) < 3:
            raise RuntimeError(f"attempt {len(attempts)}")
        return "done"

    bench.compile(flow)
    run = bench.start(flow)
    summary = bench.work_off(flow)
    assert (summary.completed, summary.failed) == (1, 2)
    task = bench.task(run, "only")
    assert (task["status"], task["attempts_count"], task["output"]) == ("completed", 3, "done")
    assert task["error_message"] == "RuntimeError: attempt 2"
    assert [line.partition(" failed: ")[2] for line in logged(logging.WARNING)] == [
        "RuntimeError: attempt 1",
        "RuntimeError: attempt 2",
    ]


def test_a_failed_attempt_is_put_off_by_the_base_delay(bench: Bench) -> None:
    flow = Flow("later", base_delay=100)
    flow.step("only")(raising(ValueError("not now")))
    bench.compile(flow)
    run = bench.start(flow)
    assert bench.work_off(flow).failed == 1
    assert bench.task(run, "only")["status"] == "queued"
    wait = "select extract(epoch from vt - clock_timestamp()) from pgmq.q_later"
    assert 190 < bench.value(wait) <= 200


@pytest.mark.parametrize(
    ("when_exhausted", "run_status", "step_status", "after_status"),
    [
        ("fail", "failed", "failed", "created"),
        ("skip", "completed", "skipped", "completed"),
        ("skip-cascade", "completed", "skipped", "skipped"),
    ],
)
def test_exhausted_attempts_do_what_was_asked_for(
    bench: Bench, when_exhausted: str, run_status: str, step_status: str, after_status: str
) -> None:
    flow = Flow("doomed", base_delay=0)
    flow.step("try_it", max_attempts=2, when_exhausted=when_exhausted)(raising(OSError("no luck")))
    flow.step("after", depends_on="try_it")(lambda context: sorted(context.input))
    bench.compile(flow)
    run = bench.start(flow)
    assert bench.work_off(flow).failed == 2
    assert bench.run(run)["status"] == run_status
    assert (bench.step(run, "try_it")["status"], bench.step(run, "after")["status"]) == (
        step_status,
        after_status,
    )
    task = bench.task(run, "try_it")
    assert (task["status"], task["attempts_count"], task["error_message"]) == (
        "failed",
        2,
        "OSError: no luck",
    )
    assert bench.value("select count(*) from pgmq.q_doomed") == 0


@pytest.mark.parametrize("status", ["cancelled", "skipped", "gone"])
def test_an_output_that_comes_too_late_changes_nothing(bench: Bench, status: str) -> None:
    flow = Flow("slow")
    end = {
        "cancelled": "update pgflow.runs set status = 'failed', failed_at = now()",
        "skipped": "select pgflow._cascade_force_skip_steps((select run_id from pgflow.runs), 'only', 'off')",
        "gone": "delete from pgflow.step_tasks",
    }
    flow.step("only")(lambda context: bench.execute(end[status]))
    bench.compile(flow)
    bench.start(flow)
    summary = bench.work_off(flow)
    assert (summary.completed, summary.failed, summary.late, summary.unreported) == (0, 0, 1, 0)
    assert (
        bench.rows("select 1 from pgflow.step_tasks where status = 'completed' or output is not null") == []
    )


def test_a_failed_map_task_cancels_its_siblings_and_the_worker_goes_on(bench: Bench) -> None:
    flow = Flow("batch", max_attempts=1)

    @flow.map("each")
    def each(context: Context) -> None:
        if context.input == "bad":
            raise ValueError("bad one")

    bench.compile(flow)
    bad, good = bench.start(flow, ["bad", "x", "x"]), bench.start(flow, ["x"])
    bench.work_off(flow, concurrency=1)
    assert (bench.run(bad)["status"], bench.run(good)["status"]) == ("failed", "completed")
    assert bench.value("select count(*) from pgmq.q_batch") == 0


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ({1, 2}, "NoJsonError: the output is no JSON: Object of type set is not JSON serializable"),
        (
            float("nan"),
            "NoJsonError: the output is no JSON: Out of range float values are not JSON compliant",
        ),
        (object, "NoJsonError: the output is no JSON: Object of type type is not JSON serializable"),
        ("a\0b", "complete_task failed: 22P05 unsupported Unicode escape sequence"),
        ("\ud800", "complete_task failed: 22P02 invalid input syntax for type json"),
    ],
    ids=["set", "nan", "type", "nul", "surrogate"],
)
def test_an_output_that_is_no_json_is_a_failed_attempt(bench: Bench, output: Any, message: str) -> None:
    flow = Flow("odd", max_attempts=1)
    flow.step("only")(lambda context: output)
    bench.compile(flow)
    run = bench.start(flow)
    summary = bench.work_off(flow)
    assert (summary.completed, summary.failed, summary.unreported) == (0, 1, 0)
    task = bench.task(run, "only")
    assert (task["status"], task["output"]) == ("failed", None)
    assert task["error_message"].startswith(message)


def test_an_output_of_the_wrong_type_for_a_map_fails_the_run_and_not_the_worker(bench: Bench) -> None:
    flow = Flow("typed")
    flow.step("list")(lambda context: {"no": "array"})
    flow.map("each", depends_on="list")(lambda context: None)
    bench.compile(flow)
    run = bench.start(flow)
    assert bench.work_off(flow).failed == 1
    assert bench.run(run)["status"] == "failed"
    assert bench.task(run, "list")["error_message"] == "[TYPE_VIOLATION] Produced object instead of array"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (SystemExit(3), "SystemExit: 3"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ValueError("nul \0 and \ud800"), "ValueError: nul \N{REPLACEMENT CHARACTER} and ?"),
        (ValueError("100% 'quoted' {}"), "ValueError: 100% 'quoted' {}"),
    ],
    ids=["exit", "interrupt", "characters", "quotes"],
)
def test_whatever_a_handler_raises_ends_its_attempt_and_nothing_else(
    bench: Bench, error: BaseException, message: str
) -> None:
    flow = Flow("raising", max_attempts=1)
    flow.map("each", when_exhausted="skip")(raising(error))
    bench.compile(flow)
    runs = [bench.start(flow, [1]) for _ in range(2)]
    assert bench.work_off(flow, concurrency=1).failed == 2
    assert [bench.task(run, "each")["error_message"] for run in runs] == [message, message]


def test_a_traceback_is_logged_for_those_who_debug(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, bench.log.name)
    flow = Flow("raising", max_attempts=1)
    flow.step("only")(raising(ValueError("look here")))
    bench.compile(flow)
    bench.start(flow)
    bench.work_off(flow)
    (record,) = [record for record in caplog.records if record.exc_info]
    assert record.levelno == logging.DEBUG
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "look here"


def test_a_report_that_the_database_cannot_take_leaves_the_task_to_recovery(
    bench: Bench, logged: Logged
) -> None:
    flow = Flow("endless", max_attempts=2**31 - 1, base_delay=2**31 - 1)
    flow.step("only")(raising(ValueError("again")))
    bench.compile(flow)
    run = bench.start(flow)
    bench.execute("update pgflow.step_tasks set attempts_count = 100")  # base delay times 2^101 overflows
    summary = bench.work_off(flow)
    assert (summary.failed, summary.unreported) == (0, 1)
    assert bench.task(run, "only")["status"] == "started"
    (line,) = logged(logging.ERROR)
    assert line.startswith(
        f"task endless/only/0 of run {run} (queue endless, message 1) could not be reported"
    )
    assert " 22003 " in line


def claimed(bench: Bench, worker_id: str) -> ClaimedTask:
    """A task of a new flow, claimed by a worker."""
    flow = Flow("twice", base_delay=100)
    flow.step("only")(print)
    bench.compile(flow)
    bench.start(flow)
    with psycopg.connect(bench.dsn, autocommit=True) as connection:
        calls.register(connection, "twice", worker_id, "twice")
        outcome = calls.claim_tasks(connection, "twice", "twice", ["1"], worker_id)
    assert isinstance(outcome, Claimed)
    (task,) = outcome.tasks
    return task


ONE, OTHER = "00000000-0000-4000-9000-000000000001", "00000000-0000-4000-9000-000000000002"


def test_a_failure_that_is_reported_twice_counts_once(bench: Bench) -> None:
    task = claimed(bench, ONE)
    with psycopg.connect(bench.dsn, autocommit=True) as connection:
        calls.fail_task(connection, task, "first", ONE)
        before = bench.row("select * from pgflow.step_tasks")
        message = bench.row("select * from pgmq.q_twice")
        calls.fail_task(connection, task, "the answer was lost", ONE)
    assert bench.row("select * from pgflow.step_tasks") == before
    assert bench.row("select * from pgmq.q_twice") == message
    assert (before["status"], before["attempts_count"], before["error_message"]) == ("queued", 1, "first")


def test_a_failure_of_an_attempt_that_another_worker_has_now_is_not_reported(bench: Bench) -> None:
    task = claimed(bench, ONE)
    bench.execute("update pgflow.step_tasks set status = 'queued', started_at = null, last_worker_id = null")
    with psycopg.connect(bench.dsn, autocommit=True) as connection:
        calls.register(connection, "twice", OTHER, "twice")
        calls.claim_tasks(connection, "twice", "twice", ["1"], OTHER)
        calls.fail_task(connection, task, "too late", ONE)
    row = bench.row("select * from pgflow.step_tasks")
    assert (row["status"], str(row["last_worker_id"]), row["error_message"]) == ("started", OTHER, None)


def test_an_output_that_is_reported_twice_counts_once(bench: Bench) -> None:
    task = claimed(bench, ONE)
    with psycopg.connect(bench.dsn, autocommit=True) as connection:
        calls.complete_task(connection, task, '"first"')
        calls.complete_task(connection, task, '"second"')
    assert bench.row("select status, output from pgflow.runs") == {
        "status": "completed",
        "output": {"only": "first"},
    }


def test_json_that_refers_to_itself_is_none() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NoJsonError, match=r"^the output is no JSON: Circular reference detected$"):
        to_json(endless)


def test_an_error_without_words_is_told_by_its_type() -> None:
    assert error_text(ValueError()) == "ValueError"
