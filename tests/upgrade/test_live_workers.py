"""Workers at work stop the upgrade, each by name; nobody else does."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import psycopg
import pytest

from pgflow_migrate.errors import EXIT_BLOCKED, LiveWorkersError
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.session import AMONG_WORKERS

Connection = psycopg.Connection[dict[str, Any]]
Unchanged = Callable[[str], AbstractContextManager[None]]
Alembic = Callable[..., "subprocess.CompletedProcess[str]"]

WORKERS = """
  select pgflow.track_worker_function('mailer');
  select pgflow.track_worker_function('resizer', 'process');
  insert into pgflow.workers
    (worker_id, function_name, queue_name, last_heartbeat_at, stopped_at, deprecated_at)
  values
    ('00000000-0000-0000-0000-000000000001', 'mailer', 'mail', now(), null, null),
    ('00000000-0000-0000-0000-000000000002', 'resizer', 'images', now() - interval '20 seconds', null, now()),
    ('00000000-0000-0000-0000-000000000003', 'gone', 'mail', now(), null, null),
    ('00000000-0000-0000-0000-000000000004', 'mailer', 'mail', now(), now(), null),
    ('00000000-0000-0000-0000-000000000005', 'mailer', 'mail', now() - interval '31 seconds', null, null);
"""


def arranged(dsn: str, statements: str) -> str:
    with psycopg.connect(dsn) as connection:
        connection.execute(statements.encode())
    return dsn


def test_each_is_named_with_function_queue_and_start_mode(
    database_at: Callable[[str], str], unchanged: Unchanged
) -> None:
    dsn = arranged(database_at("core_0_16_0"), WORKERS)
    with unchanged(dsn), pytest.raises(LiveWorkersError) as caught:
        upgrade(dsn)
    assert caught.value.exit_code == EXIT_BLOCKED
    assert caught.value.message == "The upgrade refuses: 3 workers are at work."
    assert [(w.function_name, w.start_mode, w.queue_name, w.worker_id[-1]) for w in caught.value.workers] == [
        ("gone", "unknown", "mail", "3"),
        ("mailer", "http", "mail", "1"),
        ("resizer", "process", "images", "2"),
    ]
    _, _, resizer = caught.value.details
    assert re.search(r'"images", last heartbeat 2\d s ago \(20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC\)$', resizer)
    assert "--allow-live-workers overrules this." in caught.value.remedy


def test_a_function_with_a_long_debounce_counts_as_long(
    database_at: Callable[[str], str], unchanged: Unchanged
) -> None:
    dsn = arranged(
        database_at("core_0_16_0"),
        """
        insert into pgflow.worker_functions (function_name, debounce) values ('slow', '10 minutes');
        insert into pgflow.workers (worker_id, function_name, queue_name, last_heartbeat_at)
        values ('00000000-0000-0000-0000-000000000001', 'slow', 'mail', now() - interval '9 minutes');
        """,
    )
    with unchanged(dsn), pytest.raises(LiveWorkersError, match="1 worker is at work"):
        upgrade(dsn)


def test_it_can_be_overruled(database_at: Callable[[str], str]) -> None:
    dsn = arranged(database_at("core_0_16_0"), WORKERS)
    assert upgrade(dsn, fence=AMONG_WORKERS).revision == HEAD


def test_on_the_way_from_0_15_0_they_are_looked_for_first(
    database_at: Callable[[str], str], unchanged: Unchanged
) -> None:
    dsn = arranged(database_at("core_0_15_0"), WORKERS)
    with unchanged(dsn), pytest.raises(LiveWorkersError):
        upgrade(dsn)


def test_the_command_tells_them_on_stderr_and_in_json(
    database_at: Callable[[str], str], unchanged: Unchanged
) -> None:
    dsn = arranged(database_at("core_0_16_0"), WORKERS)
    command = [sys.executable, "-m", "pgflow_migrate", "upgrade", "--dsn", dsn, "--format", "json"]
    with unchanged(dsn):
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == EXIT_BLOCKED
    document = json.loads(done.stdout)
    assert document["status"] == "live-workers"
    assert [worker["function_name"] for worker in document["workers"]] == ["gone", "mailer", "resizer"]
    assert (
        'worker 00000000-0000-0000-0000-000000000001 of function "mailer" (http) on queue "mail"'
        in " ".join(done.stderr.split())
    )
    done = subprocess.run(
        [*command, "--allow-live-workers"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, json.loads(done.stdout)["status"]) == (0, "upgraded")


def test_alembic_refuses_and_overrules_in_the_same_way(
    database_at: Callable[[str], str], alembic: Alembic, unchanged: Unchanged
) -> None:
    dsn = arranged(database_at("core_0_16_0"), WORKERS)
    with unchanged(dsn):
        done = alembic(dsn, "upgrade", "head")
    assert done.returncode == EXIT_BLOCKED
    assert "error: The upgrade refuses: 3 workers are at work." in done.stderr
    assert alembic(dsn, "-x", "allow_live_workers=maybe", "upgrade", "head").returncode == 1
    assert alembic(dsn, "-x", "allow_live_workers=true", "upgrade", "head").returncode == 0
