"""Making a database of an export: in an empty one of the same release, in one transaction.

Nothing in a file is run as SQL. Names are quoted, types have to be types of the server, defaults are of a
fixed list, and everything else is a value of COPY.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import sql

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.export.document import DEFAULTS, Column, Queue, Row, Section, Table
from pgflow_migrate.export.file import ExportFileError, Reader
from pgflow_migrate.releases import catalogue

_INTERVAL = 10_000  # rows between two reports of progress
_LAST_READ_AT = Column("last_read_at", "timestamp with time zone")

_Cursor = psycopg.Cursor[tuple[Any, ...]]


@dataclass(frozen=True)
class Rebuilt:
    """What was made.

    Attributes:
        tables: how many tables.
        rows: how many rows.
        notes: what is not as it was in the original, a sentence each.
    """

    tables: int
    rows: int
    notes: tuple[str, ...]


def rebuild(
    connection: psycopg.Connection[Any],
    reader: Reader,
    on_rows: Callable[[str], None] = lambda table: None,
) -> Rebuilt:
    """Write a file's rows and queues into a database.

    Args:
        connection: of the owner of pgflow and PGMQ, to a fresh database of the file's release.
        reader: the file.
        on_rows: called with a table's name before its first row, and after each ten thousand.

    Raises:
        ExportFileError: the file is damaged, or what it holds does not fit the release.
        PgflowMigrateError: the role may not write the rows as they are.

    Nothing is written then.
    """
    header = reader.header
    notes = [f"Not in the file: {text}" for text in (*header.left_out, *header.unread)]
    own = catalogue.snapshot(header.closest).objects
    tables = rows = 0
    with connection.transaction(), connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        cursor.execute("set local search_path = pg_catalog, pg_temp")
        target = _Target.of(cursor)
        if header.pgmq is None and not header.unread:
            cursor.execute("drop extension if exists pgmq; drop schema if exists pgmq cascade")
        with _unchecked(connection, cursor) as checked:
            for section, values in reader.sections():
                tables += 1
                try:
                    with connection.transaction():
                        told = _telling(f"{section.schema}.{section.name}", values, on_rows)
                        rows += _section(cursor, section, told, own, target, notes)
                except psycopg.Error as error:
                    said = " ".join((error.diag.message_primary or str(error)).split())
                    if checked and isinstance(error, psycopg.errors.ForeignKeyViolation):
                        raise PgflowMigrateError(
                            f"This role cannot write rows that contradict each other: {said}.",
                            "Replay on a server where the role is a superuser, such as an embedded one.",
                        ) from error
                    raise ExportFileError(
                        f"{reader.path} does not fit pgflow {header.closest}:"
                        f" {section.schema}.{section.name}: {said}.",
                        "It was changed by hand, or written by another program.",
                    ) from error
    return Rebuilt(tables, rows, tuple(dict.fromkeys(notes)))


def _telling(table: str, values: Iterable[Row], on_rows: Callable[[str], None]) -> Iterator[Row]:
    on_rows(table)
    for number, row in enumerate(values, 1):
        yield row
        if number % _INTERVAL == 0:
            on_rows(table)


@dataclass(frozen=True)
class _Target:
    """The PGMQ of the new database."""

    extension: bool
    last_read_at: bool

    @classmethod
    def of(cls, cursor: _Cursor) -> _Target:
        cursor.execute(
            """
            select exists (select from pg_extension where extname = 'pgmq'),
              exists (select from pg_attribute a join pg_type t on t.typrelid = a.attrelid
                      join pg_namespace n on n.oid = t.typnamespace
                      where n.nspname = 'pgmq' and t.typname = 'message_record'
                        and a.attname = 'last_read_at')
            """
        )
        return cls(*cursor.fetchall()[0])


@contextlib.contextmanager
def _unchecked(connection: psycopg.Connection[Any], cursor: _Cursor) -> Iterator[bool]:
    """Within it, rows are taken as they were: triggers and foreign keys of the original judged them once.

    Yields whether foreign keys hold all the same, which only a superuser can prevent. Slugs that today's rule
    refuses may be from a time with a laxer one; the audit is to find them.
    """
    cursor.execute("select pg_get_functiondef(to_regprocedure('pgflow.is_valid_slug(text)'))")
    ((rule,),) = cursor.fetchall()
    cursor.execute(
        "create or replace function pgflow.is_valid_slug(slug text) returns boolean language sql immutable"
        " set search_path to '' return true"
    )
    tables: list[str] | None = None
    try:
        with connection.transaction():
            cursor.execute("set local session_replication_role = replica")
    except psycopg.errors.InsufficientPrivilege:
        # Of the owner: foreign keys hold then, as the file's order of tables allows.
        cursor.execute(
            "select c.relname::text from pg_class c where c.relnamespace = 'pgflow'::regnamespace"
            " and c.relkind = 'r'"
            " and exists (select from pg_trigger t where t.tgrelid = c.oid and not t.tgisinternal)"
        )
        tables = [name for (name,) in cursor.fetchall()]
    _triggers(cursor, tables or (), "disable")
    yield tables is not None
    _triggers(cursor, tables or (), "enable")
    cursor.execute(rule.encode())
    if tables is None:
        cursor.execute("set local session_replication_role = origin")


def _triggers(cursor: _Cursor, tables: Iterable[str], verb: str) -> None:
    for table in tables:
        cursor.execute(
            sql.SQL("alter table pgflow.{} {} trigger user").format(sql.Identifier(table), sql.SQL(verb))
        )


def _section(
    cursor: _Cursor,
    section: Section,
    values: Iterable[Row],
    own: Iterable[str],
    target: _Target,
    notes: list[str],
) -> int:
    if isinstance(section, Table):
        known = section.schema == "pgflow" and f"table {section.name}" in own
        if not known and (section.schema, section.name) != ("pgmq", "meta"):
            raise psycopg.errors.UndefinedTable("no such table")
        return _copy(cursor, section, section.columns, values)
    columns = section.columns
    section = _adapted(section, target, notes)
    _create(cursor, section, notes)
    kept = tuple(name for name in columns if name in section.columns)
    places = [columns.index(name) for name in kept]
    count = _copy(cursor, section, kept, ([row[place] for place in places] for row in values))
    _indexes(cursor, section)
    _position(cursor, section, notes)
    if target.extension:
        _join(cursor, section)
    elif section.member:
        notes.append("Queues were members of extension pgmq; here PGMQ is no extension.")
    return count


def _copy(cursor: _Cursor, section: Section, columns: tuple[str, ...], values: Iterable[Row]) -> int:
    count = 0
    if not columns:
        return sum(1 for _ in values)
    query = sql.SQL("copy {} ({}) from stdin").format(
        sql.Identifier(section.schema, section.name), sql.SQL(", ").join(map(sql.Identifier, columns))
    )
    with cursor.copy(query) as copy:
        for row in values:
            copy.write_row(row)
            count += 1
    return count


def _adapted(queue: Queue, target: _Target, notes: list[str]) -> Queue:
    """PGMQ 1.10.0 brought last_read_at: a queue made for the other kind would be malformed here."""
    has = "last_read_at" in queue.columns
    if target.last_read_at and not has:
        notes.append("Queues got the column last_read_at, which the PGMQ of this server needs.")
        return replace(queue, attributes=(*queue.attributes, _LAST_READ_AT))
    if has and not target.last_read_at:
        notes.append("Queues lost the column last_read_at, which the PGMQ of this server does not know.")
        return replace(
            queue, attributes=tuple(column for column in queue.attributes if column.name != "last_read_at")
        )
    return queue


def _create(cursor: _Cursor, queue: Queue, notes: list[str]) -> None:
    cursor.execute(
        sql.SQL("create {} table {} ({})").format(
            sql.SQL("unlogged" if queue.unlogged else ""),
            sql.Identifier("pgmq", queue.name),
            sql.SQL(", ").join([_column(cursor, queue, column, notes) for column in queue.attributes]),
        )
    )


def _column(cursor: _Cursor, queue: Queue, column: Column, notes: list[str]) -> sql.Composed:
    cursor.execute("select format_type(t, null) from to_regtype(%s) as t where t is not null", (column.type,))
    found = cursor.fetchone()
    if found is None:
        notes.append(f"pgmq.{queue.name}.{column.name} is text here: this server has no type {column.type}.")
    parts = [sql.Identifier(column.name), sql.SQL(found[0] if found else "text")]
    if column.identity:
        name = queue.sequence.name if queue.sequence else f"{queue.name}_msg_id_seq"
        when = sql.SQL("by default" if column.identity == "by default" else "always")
        parts.append(
            sql.SQL("generated {} as identity (sequence name {})").format(when, sql.Identifier("pgmq", name))
        )
    if column.default in DEFAULTS[1:]:
        parts.append(sql.SQL(f"default {column.default}"))
    if column.not_null:
        parts.append(sql.SQL("not null"))
    return sql.SQL(" ").join(parts)


def _indexes(cursor: _Cursor, queue: Queue) -> None:
    """After the rows: quicker."""
    for index in queue.indexes:
        columns = sql.SQL(", ").join(map(sql.Identifier, index.columns))
        table, name = sql.Identifier("pgmq", queue.name), sql.Identifier(index.name)
        if index.primary:
            statement = sql.SQL("alter table {} add constraint {} primary key ({})").format(
                table, name, columns
            )
        else:
            unique = sql.SQL("unique" if index.unique else "")
            statement = sql.SQL("create {} index {} on {} ({})").format(unique, name, table, columns)
        cursor.execute(statement)


def _position(cursor: _Cursor, queue: Queue, notes: list[str]) -> None:
    sequence = queue.sequence
    if sequence is None:
        return
    if sequence.last_value is None:
        notes.append(f"The position of pgmq.{sequence.name} was not readable; it begins at 1 here.")
        return
    cursor.execute(
        "select setval(%s::regclass, %s, %s)",
        (
            sql.Identifier("pgmq", sequence.name).as_string(None),
            sequence.last_value,
            sequence.is_called,
        ),
    )


def _join(cursor: _Cursor, queue: Queue) -> None:
    """Members of the extension, as PGMQ up to 1.5 makes its queues."""
    members = [("table", queue.name)] if queue.member else []
    if queue.sequence is not None and queue.sequence.member:
        members.append(("sequence", queue.sequence.name))
    for kind, name in members:
        cursor.execute(
            sql.SQL("alter extension pgmq add {} {}").format(sql.SQL(kind), sql.Identifier("pgmq", name))
        )
