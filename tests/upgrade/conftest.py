"""What the tests of the upgrade share: nothing changed, somebody holds a lock, plain Alembic."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import psycopg
import pytest

from pgflow_migrate import resources
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.differences import differences

Unchanged = Callable[[str], AbstractContextManager[None]]
Holding = Callable[[str, str], AbstractContextManager[int]]
Alembic = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def unchanged() -> Unchanged:
    """``with unchanged(dsn):`` asserts that at its end every row and object is as it was."""

    @contextlib.contextmanager
    def checked(dsn: str) -> Iterator[None]:
        before = _signature(dsn)
        yield
        assert differences(before, _signature(dsn)) == ()

    return checked


def _signature(dsn: str) -> signature.Signature:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return signature.take(connection)


@pytest.fixture
def holding() -> Holding:
    """``with holding(dsn, "lock table …") as pid:`` keeps what the statement takes, in another session."""

    @contextlib.contextmanager
    def held(dsn: str, statement: str) -> Iterator[int]:
        with psycopg.connect(dsn, application_name="the holder") as connection:
            connection.execute(statement.encode())
            yield connection.info.backend_pid
            connection.rollback()

    return held


@pytest.fixture
def alembic() -> Alembic:
    """Run the ``alembic`` command on a database, as a person would: ``alembic(dsn, "upgrade", "head")``."""

    def run(dsn: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "alembic", "-c", str(resources.alembic_ini()), "-x", f"dsn={dsn}"]
        return subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, timeout=120
        )

    return run


@pytest.fixture
def waiting() -> Callable[[str], None]:
    """``waiting(dsn)`` returns when a session of pgflow-migrate waits for a lock in that database."""

    def wait(dsn: str, count: int = 1) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                found = connection.execute(
                    "select count(*) from pg_stat_activity where datname = current_database()"
                    " and application_name = 'pgflow-migrate' and wait_event_type = 'Lock'"
                ).fetchone()
                if found is not None and found[0] >= count:
                    return
                time.sleep(0.02)
        pytest.fail("no session of pgflow-migrate came to wait for a lock")

    return wait
