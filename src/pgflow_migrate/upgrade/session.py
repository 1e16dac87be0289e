"""The settings of the upgrade's transaction: all of them end with it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.upgrade.progress import Listener, Note

DEFAULT_LOCK_TIMEOUT = timedelta(seconds=5)

_SETTINGS = Path(__file__).with_name("session.sql").read_text(encoding="utf-8")
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


def prepare(connection: psycopg.Connection[Any], lock_timeout: timedelta, on_progress: Listener) -> None:
    """Lift the time limits of this transaction, and bound its waits for locks.

    Args:
        connection: in the upgrade's transaction, or about to begin it.
        lock_timeout: the longest wait for a lock; more than zero.
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
    cursor.execute(_settings(lock_timeout))


def script(lock_timeout: timedelta) -> str:
    """The same as SQL, to stand right after BEGIN."""
    modes = "set transaction isolation level read committed;"
    return f"{modes}\n\n{_settings(lock_timeout).as_string(None)}"


def _settings(lock_timeout: timedelta) -> sql.Composed:
    milliseconds = f"{round(lock_timeout.total_seconds() * 1000)}ms"
    return sql.SQL(
        "{}\n-- The fence reads the second one.\n"
        "select pg_catalog.set_config('lock_timeout', {value}, true),\n"
        "  pg_catalog.set_config('pgflow_migrate.lock_timeout', {value}, true);\n"
    ).format(sql.SQL(_SETTINGS), value=milliseconds)
