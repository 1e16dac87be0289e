"""Ctrl-C and signals, to a real process that waits for a lock or for its COMMIT."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager

import psycopg
import pytest

from pgflow_migrate.errors import EXIT_COULD_NOT_RUN
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server, open_server
from pgflow_migrate.upgrade import run

Holding = Callable[[str, str], AbstractContextManager[int]]
Unchanged = Callable[[str], AbstractContextManager[None]]
Waiting = Callable[..., None]


def start(dsn: str, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pgflow_migrate", "upgrade", "--dsn", dsn, "--lock-timeout", "5min"]
    return subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(dsn: str, condition: str) -> None:
    """Until pg_stat_activity has, or no longer has, a session of pgflow-migrate in this database."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        query = (
            "with ours as (select * from pg_stat_activity"
            " where application_name = 'pgflow-migrate' and datname = current_database())"
            f" select {condition}"
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if connection.execute(query.encode()).fetchone() == (True,):
                return
            time.sleep(0.02)
    pytest.fail(f"it never came to {condition}")


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")],
)
def test_a_signal_cancels_what_runs_and_rolls_back(
    database_at: Callable[[str], str],
    holding: Holding,
    unchanged: Unchanged,
    waiting: Waiting,
    number: signal.Signals,
    name: str,
) -> None:
    dsn = database_at("core_0_16_0")
    with unchanged(dsn), holding(dsn, "lock table pgflow.runs in row exclusive mode"):
        process = start(dsn)
        waiting(dsn)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
        # The server does not go on waiting for us, although the lock is still held.
        wait_until(dsn, "not exists (select from ours)")
    assert process.returncode == EXIT_COULD_NOT_RUN
    assert out == ""
    assert f"error: {name} ended the upgrade; what was running was cancelled and rolled back.\n" in err
    assert "The database is unchanged. It is safe to repeat.\n" in err
    assert "Traceback" not in err


def test_an_interrupted_upgrade_is_one_json_document(
    database_at: Callable[[str], str], holding: Holding, waiting: Waiting
) -> None:
    dsn = database_at("core_0_16_0")
    with holding(dsn, "lock table pgflow.runs in row exclusive mode"):
        process = start(dsn, "--format", "json")
        waiting(dsn)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    document = json.loads(out)
    assert (document["status"], document["exit_code"]) == ("failed", EXIT_COULD_NOT_RUN)
    assert document["error"]["message"].startswith("SIGTERM ended the upgrade;")


def test_a_signal_that_the_parent_ignores_stays_ignored(
    database_at: Callable[[str], str], holding: Holding, waiting: Waiting
) -> None:
    """As under nohup: the terminal's end does not end the upgrade."""
    dsn = database_at("core_0_16_0")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with holding(dsn, "lock table pgflow.runs in row exclusive mode"):
            process = start(dsn)
            waiting(dsn)
            process.send_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out.startswith("Upgraded from 0.16.0")


@pytest.fixture(scope="module")
def committing() -> Iterator[Server]:
    """A server of its own, because the standby that it waits for is a setting of the whole server."""
    with open_server("embedded:18", settings={"synchronous_commit": "local"}) as running:
        yield running


@pytest.fixture
def stuck(committing: Server, request: pytest.FixtureRequest) -> str:
    """A database in which COMMIT takes effect and then waits for a standby that never confirms."""
    dsn = Templates(committing).clone("core_0_16_0", f"stuck_{abs(hash(request.node.name))}")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("alter system set synchronous_standby_names = 'nobody'")
        connection.execute("select pg_reload_conf()")
        name = connection.info.dbname
        connection.execute(f"alter database {name} set synchronous_commit = on")
    return dsn


def test_an_interrupt_that_comes_too_late_is_no_failure(stuck: str) -> None:
    process = start(stuck)
    wait_until(stuck, "exists (select from ours where wait_event = 'SyncRep')")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert out.startswith("Upgraded from 0.16.0 to dirty_runs in ")
    with psycopg.connect(stuck) as connection:
        found = connection.execute("table pgflow_migrate.alembic_version").fetchall()
    assert found == [("dirty_runs",)]


def test_a_lost_connection_is_no_failure_when_the_commit_took_effect(stuck: str) -> None:
    process = start(stuck)
    wait_until(stuck, "exists (select from ours where wait_event = 'SyncRep')")
    with psycopg.connect(stuck, autocommit=True) as connection:
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where application_name = 'pgflow-migrate' and datname = current_database()"
        )
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert out.startswith("Upgraded from 0.16.0 to dirty_runs in ")


@pytest.mark.parametrize(("end", "outcome"), [("commit", "committed"), ("rollback", "aborted")])
def test_a_verdict_is_waited_for_while_the_server_has_not_decided(
    database_at: Callable[[str], str], end: str, outcome: str
) -> None:
    dsn = database_at("")
    with psycopg.connect(dsn, autocommit=True) as deciding, ThreadPoolExecutor() as pool:
        deciding.execute("begin")
        row = deciding.execute("select txid_current()").fetchone()
        assert row is not None
        asking = pool.submit(run._outcome, dsn, row[0])
        wait_until(dsn, "exists (select from ours where query ~ 'txid_status')")
        assert not asking.done()
        deciding.execute(end.encode())
        assert asking.result(30) == outcome
