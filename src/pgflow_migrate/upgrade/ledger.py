"""The ledger beside Alembic's version table: which revisions were applied, and what they were then."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from pgflow_migrate import ledger_rules, times
from pgflow_migrate.errors import BlockedError, PgflowMigrateError
from pgflow_migrate.upgrade import checksum

SCHEMA = "pgflow_migrate"
VERSION_TABLE = "alembic_version"

RENAMED: Mapping[str, str] = {}
"""Ids under which revisions were released once, to their present ones."""

CREATE = Path(__file__).with_name("ledger.sql").read_text(encoding="utf-8")

_ENTRIES: Final = """
select name, checksum, {applied_at}
from pgflow_migrate.schema_migrations
order by applied_at, name
"""

_START_AT = Path(__file__).with_name("start_at.sql").read_text(encoding="utf-8")

Connection = psycopg.Connection[Any]


@dataclass(frozen=True)
class Entry:
    """An applied revision.

    Attributes:
        name: the revision's id.
        checksum: what it was, see :func:`pgflow_migrate.upgrade.checksum.checksum`.
        applied_at: in UTC, the start of the transaction that applied it or adopted a database beyond it.
    """

    name: str
    checksum: str
    applied_at: datetime


def checksums(revisions: Sequence[str]) -> dict[str, str]:
    """The checksums of revisions as this installation has them."""
    return {revision: checksum.checksum(revision, RENAMED) for revision in revisions}


def entries(connection: Connection) -> tuple[Entry, ...]:
    """What is recorded, oldest first; nothing where there is no ledger."""
    if not _exists(connection, "schema_migrations"):
        return ()
    rows = connection.cursor(row_factory=tuple_row, binary=True).execute(
        sql.SQL(_ENTRIES).format(applied_at=times.in_utc("applied_at"))
    )
    return tuple(Entry(name, checksum_, times.of_utc(at)) for name, checksum_, at in rows)


def versions(connection: Connection) -> tuple[str, ...]:
    """What Alembic's version table holds; nothing where there is none."""
    if not _exists(connection, VERSION_TABLE):
        return ()
    rows = connection.cursor(row_factory=tuple_row).execute(
        "select version_num from pgflow_migrate.alembic_version order by version_num"
    )
    return tuple(version for (version,) in rows)


def missing_grants(connection: Connection) -> tuple[str, ...]:
    """The GRANT statements without which the role may not read ledger and version table; often none."""
    rows = connection.cursor(row_factory=tuple_row).execute(
        """
        select pg_catalog.format('grant usage on schema %I to %I;', n.nspname, current_user)
        from pg_catalog.pg_namespace n
        where n.nspname = 'pgflow_migrate' and not pg_catalog.has_schema_privilege(n.oid, 'usage')
        union all
        select pg_catalog.format('grant select on %I.%I to %I;', n.nspname, c.relname, current_user)
        from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'pgflow_migrate' and c.relname in ('schema_migrations', 'alembic_version')
          and not pg_catalog.has_table_privilege(c.oid, 'select')
        order by 1 desc
        """
    )
    return tuple(statement for (statement,) in rows)


def create(connection: Connection) -> None:
    """Take the lock of one upgrade at a time, then make schema and ledger where they are missing."""
    connection.execute(CREATE)


def adopt_renamed(connection: Connection) -> None:
    """Give revisions that were recorded under an old id their present one; applied_at stays."""
    for old, new in RENAMED.items():
        connection.execute(
            "update pgflow_migrate.schema_migrations set name = %s where name = %s", (new, old)
        )
        if _exists(connection, VERSION_TABLE):
            connection.execute(
                "update pgflow_migrate.alembic_version set version_num = %s where version_num = %s",
                (new, old),
            )


def refuse_newer(names: Collection[str], known: Collection[str]) -> None:
    """Raise when the database records a revision that this installation does not have.

    Raises:
        PgflowMigrateError: it does.
    """
    newer = ledger_rules.unknown(names, known, RENAMED)
    if newer:
        raise PgflowMigrateError(
            f'This database was upgraded by a newer pgflow-migrate: it is at revision "{newer[-1]}".',
            "Install the newest pgflow-migrate.",
        )


def changed(recorded: Sequence[Entry], present: Mapping[str, str]) -> tuple[str, ...]:
    """The recorded revisions whose files are no longer those that were applied.

    Args:
        recorded: what the ledger holds, of revisions that this installation has.
        present: their :func:`checksums`.
    """
    return ledger_rules.changed([(entry.name, entry.checksum) for entry in recorded], present)


def refuse_changed(recorded: Sequence[Entry], present: Mapping[str, str]) -> None:
    """Raise when a revision is no longer what was applied; arguments as for :func:`changed`.

    Raises:
        BlockedError: names every such revision.
    """
    names = ", ".join(f'"{name}"' for name in changed(recorded, present))
    if names:
        raise BlockedError(
            f"The files of revision {names} are not those that were applied to this database:"
            " the recorded checksum differs.",
            "Install the release of pgflow-migrate that applied it, or undo the change to its files.",
        )


def record(revisions: Sequence[str], present: Mapping[str, str]) -> str:
    """SQL that makes the ledger hold exactly ``revisions``; a stamp may also go back.

    Args:
        revisions: the ids.
        present: their :func:`checksums`.
    """
    names = sql.SQL(", ").join(map(sql.Literal, revisions))
    rows = sql.SQL(",\n  ").join(sql.SQL("({}, {})").format(name, present[name]) for name in revisions)
    forget = sql.SQL("delete from pgflow_migrate.schema_migrations{};\n").format(
        sql.SQL(" where name not in ({})").format(names) if revisions else sql.SQL("")
    )
    add = sql.SQL(
        "insert into pgflow_migrate.schema_migrations (name, checksum) values\n  {}\n"
        "on conflict (name) do nothing;\n"
    ).format(rows)
    return sql.Composed([forget, add] if revisions else [forget]).as_string(None)


def start_at(version: str) -> str:
    """SQL for a script that begins at ``version``: adopt a database without a version, refuse one at another.

    Args:
        version: the revision that the script starts from.
    """
    setting = sql.SQL("select pg_catalog.set_config('pgflow_migrate.start_at', {}, true);").format(version)
    return f"{setting.as_string(None)}\n\n{_START_AT}\n"


def _exists(connection: Connection, table: str) -> bool:
    found = connection.execute(
        """
        select from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = %s and c.relname = %s
        """,
        (SCHEMA, table),
    )
    return found.rowcount > 0
