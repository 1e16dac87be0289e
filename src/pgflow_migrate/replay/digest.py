"""The state of a database in numbers, for databases that are too big to be held as a signature.

The server adds up a hash of each value with its row's key, so what comes back is a number for each column.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from pgflow_migrate.replay import catalogue
from pgflow_migrate.replay.differences import mapping_differences, without_upgraded
from pgflow_migrate.replay.signature import (
    SCHEMAS,
    SEQUENCES,
    TABLES,
    VERSION,
    sequence_values,
)

ROWS = "(rows)"


@dataclass(frozen=True)
class Digest:
    """A database's state.

    Attributes:
        catalogue: facts about objects, see :func:`pgflow_migrate.replay.catalogue.facts`.
        tables: by ``schema.table`` a number for each column, for the row versions and for the count of rows.
        sequences: ``last_value is_called`` by ``schema.sequence``.
    """

    catalogue: Mapping[str, str]
    tables: Mapping[str, Mapping[str, str]]
    sequences: Mapping[str, str]


def take(connection: psycopg.Connection[Any]) -> Digest:
    """Read the state, in one snapshot; within a transaction, as that transaction sees it."""
    idle = connection.info.transaction_status == TransactionStatus.IDLE
    with connection.transaction(), connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        if idle:
            cursor.execute("set transaction isolation level repeatable read read only")
        cursor.execute("set local timezone to 'UTC'")
        cursor.execute(TABLES, {"schemas": list(SCHEMAS), "tables": []})
        tables = cursor.fetchall()
        cursor.execute(SEQUENCES, {"schemas": list(SCHEMAS)})
        sequences = cursor.fetchall()
        return Digest(
            catalogue=catalogue.facts(connection, SCHEMAS),
            tables={
                name: _columns(cursor, schema, table, columns, key)
                for name, schema, table, columns, key in tables
            },
            sequences=sequence_values(cursor, sequences),
        )


def differences(before: Digest, after: Digest) -> tuple[str, ...]:
    """Everything that differs, one text each; empty when nothing does."""
    return (
        *mapping_differences("", before.catalogue, after.catalogue),
        *mapping_differences("", _flat(before.tables), _flat(after.tables)),
        *mapping_differences("sequence ", before.sequences, after.sequences),
    )


def history_differences(before: Digest, after: Digest, changes: Collection[str] = ()) -> tuple[str, ...]:
    """What an upgrade changed and should not have.

    Args:
        before: taken before the upgrade.
        after: taken after it.
        changes: columns that may change, as ``schema.table.column``.
    """
    mine = {name: columns for name, columns in before.tables.items() if not _ledger(name)}
    then = {name: columns for name, columns in after.tables.items() if name in mine or not _installed(name)}
    old, now = (
        {name: text for name, text in _flat(tables).items() if not _may_change(name, changes)}
        for tables in (mine, then)
    )
    # Whether pgflow's tables got the right ones is for a comparison of catalogues to say.
    now = {name: text for name, text in now.items() if name in old or not name.startswith("column pgflow.")}
    return (
        *mapping_differences("", without_upgraded(before.catalogue), without_upgraded(after.catalogue)),
        *mapping_differences("", old, now),
        *mapping_differences("sequence ", before.sequences, after.sequences),
    )


def _columns(
    cursor: psycopg.Cursor[tuple[Any, ...]], schema: str, table: str, columns: list[str], key: list[str]
) -> dict[str, str]:
    values: list[sql.Composable] = [sql.SQL("{}::text").format(sql.Identifier(column)) for column in columns]
    values.append(sql.SQL("xmin::text || ' ' || ctid::text"))
    keys = [sql.SQL("{}::text").format(sql.Identifier(column)) for column in key]
    sums = [
        sql.SQL("coalesce(sum(hashtextextended(jsonb_build_array({})::text, 0)::numeric), 0)::text").format(
            sql.SQL(", ").join([*keys, value])
        )
        for value in values
    ]
    cursor.execute(
        sql.SQL("select count(*)::text, {} from only {}").format(
            sql.SQL(", ").join(sums), sql.Identifier(schema, table)
        )
    )
    return dict(zip((ROWS, *columns, VERSION), cursor.fetchall()[0], strict=True))


def _flat(tables: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    return {
        f"column {name}.{column}": text
        for name, columns in tables.items()
        for column, text in columns.items()
    }


def _may_change(name: str, changes: Collection[str]) -> bool:
    """Row versions say nothing where tables are rewritten."""
    return name.endswith(f".{VERSION}") or name.removeprefix("column ") in changes


def _installed(table: str) -> bool:
    return table.startswith(("pgflow.", "pgflow_migrate."))


def _ledger(table: str) -> bool:
    return table.startswith("pgflow_migrate.")
