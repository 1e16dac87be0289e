"""The state of a database as a value: two signatures are equal exactly when nothing has changed.

A signature holds the catalogue, every row of every table with its row version, and every sequence. The row
version (xmin and ctid) shows a row that was rewritten with the values it had; so an audit that writes, or a
failed upgrade that was not rolled back, cannot pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import psycopg
from psycopg import sql
from psycopg.pq import TransactionStatus

from pgflow_migrate.replay import catalogue

SCHEMAS = ("pgflow", "pgmq", "pgflow_migrate", "public")
VERSION = "(row version)"

# Tables of other schemas that an upgrade has to leave alone.
_OTHER_TABLES = ("cron.job",)

TABLES = """
select n.nspname || '.' || c.relname, n.nspname, c.relname,
  array(select a.attname::text from pg_catalog.pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum),
  coalesce((select array(select a.attname::text from unnest(x.indkey) as k (attnum)
              join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum)
            from pg_catalog.pg_index x where x.indrelid = c.oid and x.indisprimary), '{}')
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r'
  and (n.nspname = any (%(schemas)s::text[]) or n.nspname || '.' || c.relname = any (%(tables)s::text[]))
order by 1
"""

SEQUENCES = """
select n.nspname || '.' || c.relname, n.nspname, c.relname
from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'S' and n.nspname = any (%(schemas)s::text[])
order by 1
"""


@dataclass(frozen=True)
class Rows:
    """A table's rows, each value as PostgreSQL prints it and ``None`` for NULL, sorted by key.

    Attributes:
        columns: names, in physical order; the last is :data:`VERSION`.
        key: the primary key's columns, empty without one.
        rows: one tuple a row, parallel to ``columns``.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...]
    rows: tuple[tuple[str | None, ...], ...]

    def by_key(self) -> dict[tuple[str | None, ...], tuple[str | None, ...]]:
        """The rows under their keys; a table without primary key counts the row version as the key."""
        places = [self.columns.index(name) for name in self.key or (VERSION,)]
        return {tuple(row[place] for place in places): row for row in self.rows}


@dataclass(frozen=True)
class Signature:
    """A database's state.

    Attributes:
        catalogue: facts about objects, see :func:`pgflow_migrate.replay.catalogue.facts`.
        tables: rows by ``schema.table``.
        sequences: ``last_value is_called`` by ``schema.sequence``.
    """

    catalogue: Mapping[str, str]
    tables: Mapping[str, Rows]
    sequences: Mapping[str, str]


def take(connection: psycopg.Connection[Any], schemas: Sequence[str] = SCHEMAS) -> Signature:
    """Read the state, in one snapshot; within a transaction, as that transaction sees it.

    Args:
        connection: an open connection.
        schemas: the schemas to read whole.
    """
    idle = connection.info.transaction_status == TransactionStatus.IDLE
    with connection.transaction(), connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        if idle:
            cursor.execute("set transaction isolation level repeatable read read only")
        cursor.execute("set local timezone to 'UTC'")
        cursor.execute(TABLES, {"schemas": list(schemas), "tables": list(_OTHER_TABLES)})
        tables = cursor.fetchall()
        cursor.execute(SEQUENCES, {"schemas": list(schemas)})
        sequences = cursor.fetchall()
        return Signature(
            catalogue=catalogue.facts(connection, schemas),
            tables=_rows(cursor, tables),
            sequences=sequence_values(cursor, sequences),
        )


def _rows(cursor: psycopg.Cursor[tuple[Any, ...]], tables: Iterable[tuple[Any, ...]]) -> dict[str, Rows]:
    described = {name: (tuple(columns), tuple(key)) for name, _, _, columns, key in tables}
    found: dict[str, list[tuple[str | None, ...]]] = {name: [] for name in described}
    selects = [
        sql.SQL(
            "select {}, array[{}]::text[] || array[t.xmin::text || ' ' || t.ctid::text] from only {} t"
        ).format(
            sql.Literal(name),
            sql.SQL(", ").join(sql.SQL("t.{}::text").format(sql.Identifier(column)) for column in columns),
            sql.Identifier(schema, table),
        )
        for name, schema, table, columns, _ in tables
    ]
    for query in _together(selects):
        cursor.execute(query)
        for name, values in cursor:
            found[name].append(tuple(values))
    return {
        name: Rows((*columns, VERSION), key, tuple(sorted(found[name], key=_sortable)))
        for name, (columns, key) in described.items()
    }


def sequence_values(
    cursor: psycopg.Cursor[tuple[Any, ...]], sequences: Iterable[tuple[Any, ...]]
) -> dict[str, str]:
    """``last_value is_called`` of each row of :data:`SEQUENCES`."""
    selects = [
        sql.SQL("select {}, last_value || ' ' || is_called from {}").format(
            sql.Literal(name), sql.Identifier(schema, sequence)
        )
        for name, schema, sequence in sequences
    ]
    values: dict[str, str] = {}
    for query in _together(selects):
        cursor.execute(query)
        values.update(cursor.fetchall())
    return values


def _together(selects: Iterable[sql.Composed], size: int = 200) -> Iterator[sql.Composed]:
    """Some hundred SELECTs a statement: one round trip each would dominate with many queues."""
    left = iter(selects)
    while batch := list(islice(left, size)):
        yield sql.SQL(" union all ").join(batch)


def _sortable(row: tuple[str | None, ...]) -> tuple[tuple[bool, str], ...]:
    return tuple((value is not None, value or "") for value in row)
