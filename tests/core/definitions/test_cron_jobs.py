"""The cron jobs of a fresh database and the two functions that schedule them again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[dict[str, Any]]

JOBS = "select jobid, jobname, schedule, command, active from cron.job order by jobname"
COMMANDS = {
    "pgflow_cleanup_logs": "pgflow.cleanup_ensure_workers_logs()",
    "pgflow_ensure_workers": "pgflow.ensure_workers()",
    "pgflow_requeue_stalled_tasks": "pgflow.requeue_stalled_tasks()",
}


@pytest.fixture
def schedules(rows: Callable[..., list[dict[str, Any]]]) -> Callable[[], dict[str, str]]:
    """The schedule of each job, once it is sure that its name is unique and its command right."""

    def read() -> dict[str, str]:
        jobs = rows(JOBS)
        for job in jobs:
            called = re.escape(COMMANDS[job["jobname"]])
            assert re.fullmatch(
                rf"\s*select\s+(\*\s+from\s+)?{called}\s*;?\s*", job["command"], re.IGNORECASE
            )
            assert job["active"] is True
        found = {str(job["jobname"]): str(job["schedule"]) for job in jobs}
        assert len(found) == len(jobs)
        return found

    return read


def test_a_fresh_database_has_the_three_jobs(schedules: Callable[[], dict[str, str]]) -> None:
    assert schedules() == {
        "pgflow_cleanup_logs": "0 * * * *",
        "pgflow_ensure_workers": "1 second",
        "pgflow_requeue_stalled_tasks": "15 seconds",
    }


@pytest.mark.parametrize(("arguments", "interval"), [("", "1 second"), ("'5 seconds'", "5 seconds")])
def test_setting_up_ensure_workers_replaces_its_two_jobs(
    db: Connection,
    schedules: Callable[[], dict[str, str]],
    rows: Callable[..., list[dict[str, Any]]],
    value: Callable[..., Any],
    arguments: str,
    interval: str,
) -> None:
    before = {job["jobname"]: job for job in rows(JOBS)}
    message = value(f"select pgflow.setup_ensure_workers_cron({arguments})")
    jobs = {job["jobname"]: job for job in rows(JOBS)}
    assert message == (
        f"Scheduled pgflow_ensure_workers (every {interval}, job_id={jobs['pgflow_ensure_workers']['jobid']})"
        f" and pgflow_cleanup_logs (hourly, job_id={jobs['pgflow_cleanup_logs']['jobid']})"
    )
    assert schedules() == {
        "pgflow_cleanup_logs": "0 * * * *",
        "pgflow_ensure_workers": interval,
        "pgflow_requeue_stalled_tasks": "15 seconds",
    }
    assert jobs["pgflow_requeue_stalled_tasks"] == before["pgflow_requeue_stalled_tasks"]
    # Unscheduled and scheduled, not altered.
    for name in ("pgflow_cleanup_logs", "pgflow_ensure_workers"):
        assert jobs[name]["jobid"] != before[name]["jobid"]


@pytest.mark.parametrize(("arguments", "interval"), [("", "15 seconds"), ("'30 seconds'", "30 seconds")])
def test_setting_up_requeue_stalled_tasks_replaces_its_job(
    schedules: Callable[[], dict[str, str]],
    rows: Callable[..., list[dict[str, Any]]],
    value: Callable[..., Any],
    arguments: str,
    interval: str,
) -> None:
    before = {job["jobname"]: job for job in rows(JOBS)}
    message = value(f"select pgflow.setup_requeue_stalled_tasks_cron({arguments})")
    jobs = {job["jobname"]: job for job in rows(JOBS)}
    job_id = jobs["pgflow_requeue_stalled_tasks"]["jobid"]
    assert message == f"Scheduled pgflow_requeue_stalled_tasks (every {interval}, job_id={job_id})"
    assert schedules()["pgflow_requeue_stalled_tasks"] == interval
    assert job_id != before["pgflow_requeue_stalled_tasks"]["jobid"]
    for name in ("pgflow_cleanup_logs", "pgflow_ensure_workers"):
        assert jobs[name] == before[name]


def test_setting_up_works_without_any_job_to_replace(
    db: Connection, schedules: Callable[[], dict[str, str]], value: Callable[..., Any]
) -> None:
    db.execute("delete from cron.job")
    value("select pgflow.setup_ensure_workers_cron()")
    value("select pgflow.setup_requeue_stalled_tasks_cron()")
    assert schedules() == {
        "pgflow_cleanup_logs": "0 * * * *",
        "pgflow_ensure_workers": "1 second",
        "pgflow_requeue_stalled_tasks": "15 seconds",
    }


def test_repeated_calls_leave_one_job_of_each_name(
    schedules: Callable[[], dict[str, str]], value: Callable[..., Any]
) -> None:
    for interval in ("1 second", "2 seconds", "3 seconds"):
        value("select pgflow.setup_ensure_workers_cron(cron_interval => %s)", interval)
        value("select pgflow.setup_requeue_stalled_tasks_cron(cron_interval => %s)", interval)
    assert schedules() == {
        "pgflow_cleanup_logs": "0 * * * *",
        "pgflow_ensure_workers": "3 seconds",
        "pgflow_requeue_stalled_tasks": "3 seconds",
    }


@pytest.mark.parametrize("function", ["setup_ensure_workers_cron", "setup_requeue_stalled_tasks_cron"])
def test_a_schedule_that_pg_cron_refuses_changes_nothing(
    refused: Callable[..., psycopg.Error], function: str
) -> None:
    error = refused(f"select pgflow.{function}('sometimes')")
    assert (error.sqlstate, error.diag.message_primary) == ("22023", "invalid schedule: sometimes")


@pytest.mark.parametrize("function", ["setup_ensure_workers_cron", "setup_requeue_stalled_tasks_cron"])
def test_any_role_that_may_use_the_schema_can_set_up_the_owners_jobs(
    db: Connection, schedules: Callable[[], dict[str, str]], value: Callable[..., Any], function: str
) -> None:
    db.execute("create role definitions_visitor")
    db.execute("grant usage on schema pgflow to definitions_visitor")
    db.execute("set local role definitions_visitor")
    value(f"select pgflow.{function}('7 seconds')")
    db.execute("reset role")
    assert sorted(schedules().values()) == sorted(
        ["0 * * * *", "7 seconds", "15 seconds" if "ensure" in function else "1 second"]
    )
