"""``pgflow.cleanup_ensure_workers_logs(retention_hours)``: old lines of pg_cron's log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[dict[str, Any]]


@pytest.fixture(autouse=True)
def log(db: Connection) -> None:
    """Lines of two jobs; each says in ``return_message`` how old it is."""
    db.execute(
        """
        insert into cron.job_run_details (jobid, runid, return_message, start_time, end_time) values
          (1, 1, '10 days', now() - interval '1 year', now() - interval '10 days'),
          (2, 2, 'over 24 hours', now() - interval '1 year', now() - interval '24 hours 1 microsecond'),
          (1, 3, '24 hours', now() - interval '1 year', now() - interval '24 hours'),
          (2, 4, '2 hours', now() - interval '1 year', now() - interval '2 hours'),
          (1, 5, '1 minute', now() - interval '1 year', now() - interval '1 minute'),
          (2, 6, 'unfinished', now() - interval '1 year', null)
        """
    )


@pytest.mark.parametrize(
    ("arguments", "deleted", "kept"),
    [
        ("", 2, ["1 minute", "2 hours", "24 hours", "unfinished"]),
        ("retention_hours => 24", 2, ["1 minute", "2 hours", "24 hours", "unfinished"]),
        ("1", 4, ["1 minute", "unfinished"]),
        ("0", 5, ["unfinished"]),
        ("1000", 0, ["1 minute", "10 days", "2 hours", "24 hours", "over 24 hours", "unfinished"]),
    ],
)
def test_deletes_the_lines_of_all_jobs_that_ended_before_the_retention(
    row: Callable[..., dict[str, Any]],
    rows: Callable[..., list[dict[str, Any]]],
    arguments: str,
    deleted: int,
    kept: list[str],
) -> None:
    assert row(f"select * from pgflow.cleanup_ensure_workers_logs({arguments})") == {"cron_deleted": deleted}
    found = rows('select return_message from cron.job_run_details order by return_message collate "C"')
    assert [line["return_message"] for line in found] == kept


def test_a_second_call_finds_nothing(row: Callable[..., dict[str, Any]]) -> None:
    row("select * from pgflow.cleanup_ensure_workers_logs()")
    assert row("select * from pgflow.cleanup_ensure_workers_logs()") == {"cron_deleted": 0}


def test_runs_with_the_rights_of_its_owner(db: Connection, row: Callable[..., dict[str, Any]]) -> None:
    db.execute("create role definitions_visitor")
    db.execute("grant usage on schema pgflow to definitions_visitor")
    db.execute("set local role definitions_visitor")
    assert row("select * from pgflow.cleanup_ensure_workers_logs()") == {"cron_deleted": 2}
