"""Opening a store for an upgrade: what is refused beforehand, and what is done under the first lock."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.work_center import backup as backups
from pgflow_migrate.work_center import ledger, progress
from pgflow_migrate.work_center import store as files
from pgflow_migrate.work_center.chain import Step
from pgflow_migrate.work_center.revision import Store
from pgflow_migrate.work_center.values import MAX_SAFE_INTEGER

SOURCE_SCHEMA_VERSION = 22
"""The version that backfilled rows come from, unless told otherwise."""


@contextlib.contextmanager
def for_upgrade(
    path: Path,
    *,
    now: int | None = None,
    source_schema_version: int = SOURCE_SCHEMA_VERSION,
    lock_timeout: timedelta = files.LOCK_TIMEOUT,
    backup: Path | bool = True,
    on_progress: progress.Listener = progress.ignore,
) -> Iterator[tuple[Store, Callable[[Step], None]]]:
    """The store, and what is to be called before its first step is applied, under that step's lock.

    Arguments and errors are those of :func:`pgflow_migrate.work_center.upgrade.upgrade`.
    """
    with files.opened(path, lock_timeout) as connection:
        check(connection, str(path))
        store = described(connection, now, source_schema_version, on_progress)

        def before_first(step: Step) -> None:
            # Whatever came in before the lock is looked at, and copied, too.
            check(connection, str(path))
            if backup is False:
                _check_pages(connection, path)
                return
            target = backup if isinstance(backup, Path) else backups.default_path(path, step.number)
            on_progress(backups.make(path, target, lock_timeout))

        yield store, before_first


def described(
    connection: sqlite3.Connection,
    now: int | None,
    source_schema_version: int,
    on_progress: progress.Listener,
) -> Store:
    """The store on ``connection``; ``now`` is the clock's unless given.

    Raises:
        PgflowMigrateError: a number is not one that the program could be given.
    """
    for name, value in (("now", now or 0), ("source_schema_version", source_schema_version)):
        if abs(value) > MAX_SAFE_INTEGER:
            raise PgflowMigrateError(f"{name} is {value}, which a JavaScript number cannot hold exactly.")
    return Store(connection, clock(now), source_schema_version, on_progress)


def clock(now: int | None) -> int:
    """``now``, or what the clock says: milliseconds since 1970."""
    return time.time_ns() // 1_000_000 if now is None else now


def check(connection: sqlite3.Connection, path: str) -> dict[str, ledger.Entry]:
    """The ledger of a store that may be upgraded; changes nothing.

    Raises:
        PgflowMigrateError: it is no store, or a newer one.
        BlockedError: a recorded checksum is not that of the step.
    """
    files.require_tables(connection, path)
    entries = ledger.read(connection)
    ledger.refuse(entries)
    return entries


def _check_pages(connection: sqlite3.Connection, path: Path) -> None:
    (found,) = connection.execute("pragma quick_check(1)").fetchone()
    if found != "ok":
        raise PgflowMigrateError(
            f"{path} is damaged: {found}.",
            "Restore a backup, or copy what can be read by sqlite3's .recover.",
        )
