"""Locks held by others, another upgrade at the same time, and the server going away."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta

import psycopg
import pytest

from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, EXIT_FENCE, FenceError, PgflowMigrateError
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.session import Fence

Holding = Callable[[str, str], AbstractContextManager[int]]
Unchanged = Callable[[str], AbstractContextManager[None]]
Waiting = Callable[..., None]

SHORT = timedelta(milliseconds=200)


@pytest.mark.parametrize(
    ("start", "table", "at"),
    [
        ("core_0_15_0", "pgflow.step_tasks", "queue_identity/fence.sql"),
        ("core_0_16_0", "pgflow.runs", "queue_identity/fence.sql"),
        ("core_0_16_0", "pgflow.flows", "queue_identity/fence.sql"),
        ("core_0_16_0", "pgmq.meta", "queue_identity/fence.sql"),
    ],
)
def test_a_lock_that_is_not_had_in_time_changes_nothing_and_names_the_holder(
    database_at: Callable[[str], str],
    holding: Holding,
    unchanged: Unchanged,
    start: str,
    table: str,
    at: str,
) -> None:
    dsn = database_at(start)
    with (
        unchanged(dsn),
        holding(dsn, f"lock table {table} in row exclusive mode") as pid,
        pytest.raises(FenceError) as caught,
    ):
        upgrade(dsn, fence=Fence(SHORT, SHORT))
    error = caught.value
    assert error.exit_code == EXIT_FENCE
    assert error.message == f"The locks for the upgrade were not obtained within 0.2 s ({at})."
    assert error.remedy.startswith("The database is unchanged. It is safe to repeat;")
    (blocker,) = error.blockers
    assert (blocker.pid, blocker.application, blocker.state) == (pid, "the holder", "idle in transaction")
    assert blocker.holds == (table,)
    assert blocker.query_age is not None
    assert error.details == (str(blocker),)
    assert upgrade(dsn).revision == HEAD  # safe to repeat


def test_another_upgrade_is_named_as_the_holder(
    database_at: Callable[[str], str], holding: Holding, unchanged: Unchanged
) -> None:
    dsn = database_at("core_0_16_0")
    lock = "select pg_advisory_xact_lock(hashtextextended('pgflow-migrate', 0))"
    with unchanged(dsn), holding(dsn, lock) as pid, pytest.raises(FenceError) as caught:
        upgrade(dsn, fence=Fence(SHORT, SHORT))
    assert caught.value.message == (
        "The locks for the upgrade were not obtained within 0.2 s (outside the revisions)."
    )
    assert [(blocker.pid, blocker.holds) for blocker in caught.value.blockers] == [
        (pid, ("pgflow-migrate itself",))
    ]


def test_of_two_upgrades_at_once_the_second_finds_everything_done(
    database_at: Callable[[str], str], holding: Holding, waiting: Waiting
) -> None:
    dsn = database_at("core_0_16_0")
    command = [sys.executable, "-m", "pgflow_migrate", "upgrade", "--dsn", dsn, "--lock-timeout", "60s"]

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    with holding(dsn, "lock table pgflow.runs in row exclusive mode"):
        first = start()
        waiting(dsn, 1)
        second = start()
        waiting(dsn, 2)
    said = [process.communicate(timeout=60)[0] for process in (first, second)]
    assert [process.returncode for process in (first, second)] == [0, 0]
    assert said[0].startswith("Upgraded from 0.16.0 to dirty_runs in ")
    assert said[1] == "Already upgraded: the database is at dirty_runs; nothing was changed.\n"


def test_a_deadlock_is_a_lock_that_was_not_obtained(
    database_at: Callable[[str], str], unchanged: Unchanged, waiting: Waiting
) -> None:
    dsn = database_at("core_0_16_0")
    with unchanged(dsn), psycopg.connect(dsn) as other:
        # The other session never looks for deadlocks, so that the victim is always the upgrade.
        other.execute("set deadlock_timeout = '10min'")
        other.commit()
        # Beyond the fence: it does not stop the upgrade from reading the ledger, but from writing it.
        other.execute("lock table pgflow_migrate.schema_migrations in share mode")

        def close_the_circle() -> None:
            waiting(dsn)  # the upgrade has all of pgflow by now
            other.execute("lock table pgflow.runs")

        thread = threading.Thread(target=close_the_circle)
        thread.start()
        with pytest.raises(FenceError) as caught:
            upgrade(dsn, fence=Fence(timedelta(minutes=2)))
        thread.join()
        other.rollback()
    assert (
        caught.value.message == "A deadlock with another session ended the upgrade (outside the revisions)."
    )


def test_a_session_that_is_ended_by_the_administrator_changes_nothing(
    database_at: Callable[[str], str], holding: Holding, unchanged: Unchanged, waiting: Waiting
) -> None:
    dsn = database_at("core_0_16_0")

    def end_it() -> None:
        waiting(dsn)
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'pgflow-migrate' and datname = current_database()"
            )

    thread = threading.Thread(target=end_it)
    with unchanged(dsn), holding(dsn, "lock table pgflow.runs in row exclusive mode"):
        thread.start()
        with pytest.raises(PgflowMigrateError) as caught:
            upgrade(dsn, fence=Fence(timedelta(minutes=1)))
        thread.join()
    assert caught.value.exit_code == EXIT_COULD_NOT_RUN
    assert caught.value.message == (
        "The server ended the upgrade (queue_identity/fence.sql):"
        " terminating connection due to administrator command."
    )
    assert caught.value.remedy == "The database is unchanged. It is safe to repeat."


def test_the_wait_ends_as_soon_as_the_lock_is_free(
    database_at: Callable[[str], str], waiting: Waiting
) -> None:
    dsn = database_at("core_0_16_0")
    with psycopg.connect(dsn) as holder:
        holder.execute("lock table pgflow.runs in row exclusive mode")

        def release() -> None:
            waiting(dsn)
            holder.rollback()

        thread = threading.Thread(target=release)
        thread.start()
        started = time.monotonic()
        assert upgrade(dsn, fence=Fence(timedelta(minutes=1))).revision == HEAD
        assert time.monotonic() - started < 50
        thread.join()


def test_it_waits_for_a_snapshot_from_before_in_which_its_tables_would_be_empty(
    database_at: Callable[[str], str], unchanged: Unchanged
) -> None:
    dsn = database_at("core_0_16_0")
    with unchanged(dsn), psycopg.connect(dsn, application_name="a report") as reader:
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        reader.execute("select 1")
        with pytest.raises(FenceError) as caught:
            upgrade(dsn, fence=Fence(SHORT, SHORT))
        pid = reader.info.backend_pid
        reader.rollback()
    assert [(blocker.pid, blocker.application, blocker.holds) for blocker in caught.value.blockers] == [
        (pid, "a report", ("a snapshot from before the upgrade",))
    ]


def test_an_idle_transaction_without_a_snapshot_is_in_nobodys_way(database_at: Callable[[str], str]) -> None:
    dsn = database_at("core_0_16_0")
    with psycopg.connect(dsn, application_name="a dashboard") as dashboard:
        dashboard.execute("select count(*) from pg_class")
        assert upgrade(dsn, fence=Fence(SHORT, SHORT)).revision == HEAD
        dashboard.rollback()
