"""Worker functions that are paused: their worker met work that it could not account for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from pgflow_migrate import times

_PAUSED: Final = """
select function_name, {paused_at}, pause_reason
from pgflow.worker_functions
where paused_at is not null
order by function_name collate "C"
"""


@dataclass(frozen=True)
class PausedFunction:
    """A worker function that ``pgflow.ensure_workers()`` leaves alone.

    Attributes:
        function_name: its name.
        paused_at: since when, in UTC; the first or last time that Python has where it is beyond that.
        reason: why.
        resume: the statement that lifts it.
    """

    function_name: str
    paused_at: datetime
    reason: str
    resume: str


def missing_grants(connection: psycopg.Connection[Any]) -> tuple[str, ...]:
    """The GRANT statements without which the role may not look for paused functions; often none."""
    rows = connection.cursor(row_factory=tuple_row).execute(
        """
        select pg_catalog.format('grant usage on schema %I to %I;', n.nspname, current_user)
        from pg_catalog.pg_namespace n
        where n.nspname = 'pgflow' and not pg_catalog.has_schema_privilege(n.oid, 'usage')
        union all
        select pg_catalog.format('grant select on %I.%I to %I;', n.nspname, c.relname, current_user)
        from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'pgflow' and c.relname = 'worker_functions'
          and not pg_catalog.has_table_privilege(c.oid, 'select')
        order by 1 desc
        """
    )
    return tuple(statement for (statement,) in rows)


def pausable(connection: psycopg.Connection[Any]) -> bool:
    """Whether this pgflow can pause functions: since queue identity it can."""
    found = connection.execute(
        """
        select
        from pg_catalog.pg_attribute a
        join pg_catalog.pg_class c on c.oid = a.attrelid
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'pgflow' and c.relname = 'worker_functions'
          and a.attname in ('paused_at', 'pause_reason') and not a.attisdropped
        """
    )
    return found.rowcount == 2


def read(connection: psycopg.Connection[Any]) -> tuple[PausedFunction, ...]:
    """The paused functions, by name; only where they are :func:`pausable`."""
    rows = connection.cursor(row_factory=tuple_row, binary=True).execute(
        sql.SQL(_PAUSED).format(paused_at=times.in_utc("paused_at"))
    )
    return tuple(PausedFunction(name, times.of_utc(at), reason, _resume(name)) for name, at, reason in rows)


def _resume(name: str) -> str:
    return sql.SQL("select pgflow.resume_worker_function({});").format(name).as_string(None)
