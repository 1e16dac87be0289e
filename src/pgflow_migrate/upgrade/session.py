"""The settings of the upgrade's transaction: all of them end with it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.upgrade.progress import Listener, Note

HEADER = Path(__file__).with_name("header.sql").read_text(encoding="utf-8")
"""What a script says before its first statement."""

HEADER_BACK = Path(__file__).with_name("header_back.sql").read_text(encoding="utf-8")
"""The same for a script that takes a revision back."""

_GUARD = Path(__file__).with_name("guard.sql").read_text(encoding="utf-8")
_SETTINGS = Path(__file__).with_name("session.sql").read_text(encoding="utf-8")
# A script begins with these: the isolation level cannot be changed after a query, and no operator, type or
# function may be looked up anywhere but in pg_catalog.
_FIRST_OF_SCRIPT = """\
set transaction isolation level read committed;
set local search_path = pg_catalog, pg_temp;
"""
_MODES = """
select pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('transaction_read_only') = 'on',
  pg_catalog.current_setting('transaction_isolation') = 'read committed',
  (select s.source from pg_catalog.pg_settings s
   where s.name = 'default_transaction_read_only' and s.setting = 'on')
"""
_LIMITS = """
select s.name, pg_catalog.current_setting(s.name), s.source from pg_catalog.pg_settings s
where s.name in ('statement_timeout', 'idle_in_transaction_session_timeout', 'transaction_timeout')
  and s.setting <> '0'
order by s.name
"""


@dataclass(frozen=True)
class Fence:
    """How the upgrade gets its locks.

    Attributes:
        lock_timeout: the longest single wait for a lock, above zero; others queue behind us meanwhile.
        max_wait: how long it goes on trying, giving all locks back in between; the last try may take a
            lock_timeout more.
        allow_live_workers: whether it goes ahead although workers are at work.
    """

    lock_timeout: timedelta = timedelta(seconds=5)
    max_wait: timedelta = timedelta(seconds=30)
    allow_live_workers: bool = False


AMONG_WORKERS = Fence(allow_live_workers=True)
"""The defaults, but for databases whose workers are made up."""


def prepare(connection: psycopg.Connection[Any], fence: Fence, on_progress: Listener) -> None:
    """Lift the time limits of this transaction, and bound its waits for locks.

    Args:
        connection: in the upgrade's transaction, its search_path pinned.
        fence: how it waits.
        on_progress: told which limits were lifted.

    Raises:
        PgflowMigrateError: the server is a standby, the default is read-only, or the transaction is not READ
            COMMITTED READ WRITE.
    """
    cursor = connection.cursor(row_factory=psycopg.rows.tuple_row)
    standby, read_only, read_committed, default = cursor.execute(_MODES).fetchall()[0]
    if standby:
        raise PgflowMigrateError(
            "The server is a hot standby, which only the primary can change.",
            "To upgrade, connect to the primary.",
        )
    if read_only and default is not None:
        raise PgflowMigrateError(
            f"default_transaction_read_only is on here ({default}): this database is not to be changed.",
            "If it may be, turn that off, or add options='-c default_transaction_read_only=off' to the"
            " connection string.",
        )
    if read_only or not read_committed:
        raise PgflowMigrateError(
            "The connection's transaction is not READ COMMITTED READ WRITE.",
            "Begin it so: what was committed while the upgrade waited for a lock must be seen.",
        )
    for name, value, source in cursor.execute(_LIMITS):
        on_progress(Note(f"{name} is {value} here ({source}); it does not apply within the upgrade."))
    cursor.execute(_settings(fence))


def script(fence: Fence) -> str:
    """The same as SQL, to stand at the beginning of the transaction."""
    return f"{_FIRST_OF_SCRIPT}\n{_GUARD}\n{_settings(fence).as_string(None)}"


def _settings(fence: Fence) -> sql.Composed:
    return sql.SQL(
        "{}\n-- The fence reads these.\n"
        "select pg_catalog.set_config('lock_timeout', {lock_timeout}, true),\n"
        "  pg_catalog.set_config('pgflow_migrate.lock_timeout', {lock_timeout}, true),\n"
        "  pg_catalog.set_config('pgflow_migrate.max_wait', {max_wait}, true),\n"
        "  pg_catalog.set_config('pgflow_migrate.allow_live_workers', {allow_live_workers}, true);\n"
    ).format(
        sql.SQL(_SETTINGS),
        lock_timeout=_milliseconds(fence.lock_timeout),
        max_wait=_milliseconds(fence.max_wait),
        allow_live_workers="on" if fence.allow_live_workers else "off",
    )


def _milliseconds(duration: timedelta) -> str:
    return f"{round(duration.total_seconds() * 1000)}ms"
