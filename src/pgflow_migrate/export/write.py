"""Copying a database's pgflow into a file: one read-only snapshot, row by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from pgflow_migrate import database, reading
from pgflow_migrate.audit.run import snapshot
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.export import inventory, redact
from pgflow_migrate.export.document import Header, Queue, Section
from pgflow_migrate.export.file import Writer, cannot_write, destination

_INTERVAL = 10_000  # rows between two reports of progress

# What decides how PostgreSQL prints a value: of every server the same, and read by every server the same.
_AS_TEXT = """
set local datestyle = 'ISO, YMD';
set local intervalstyle = 'postgres';
set local timezone = 'UTC';
set local extra_float_digits = 1;
set local bytea_output = 'hex';
"""


@dataclass(frozen=True)
class Copied:
    """A table that has been copied, and how many rows it had."""

    table: str
    rows: int


@dataclass(frozen=True)
class Copying:
    """A table that is being copied.

    Attributes:
        table: its name, with its schema.
        rows: how many of its rows are copied so far.
        number: which table it is, from 1.
        of: how many there are.
    """

    table: str
    rows: int
    number: int
    of: int


@dataclass(frozen=True)
class Exported:
    """An export that was written.

    Attributes:
        path: the file.
        header: its first line.
        queues: how many queues pgflow uses.
        tables: what was copied, in order.
        size: the file's bytes.
        unread: the header's, with the role in the statements, which the file does not name.
    """

    path: Path
    header: Header
    queues: int
    tables: tuple[Copied, ...]
    size: int
    unread: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """How many rows were copied."""
        return sum(table.rows for table in self.tables)


def export(
    dsn: str,
    path: Path,
    *,
    redacted: bool = False,
    force: bool = False,
    on_copied: Callable[[Copied], None] = lambda copied: None,
    on_copying: Callable[[Copying], None] = lambda copying: None,
) -> Exported:
    """Copy pgflow's rows and its queues into a file; changes nothing in the database.

    Args:
        dsn: a connection string in any spelling; nothing of it gets into the file.
        path: where the file is put when it is whole.
        redacted: replace payloads by placeholders, see :mod:`pgflow_migrate.export.redact`.
        force: whether ``path`` may be replaced.
        on_copied: called after each table.
        on_copying: called before each table, and after each ten thousand of its rows.

    Raises:
        ExportExistsError: there is such a file, and it may not be replaced; or it is no regular file.
        PgflowMigrateError: no connection, no pgflow, rights on pgflow's tables that are missing, the server
            ended the copy, a value is no UTF-8, or the file cannot be written. There is no new file then.
    """
    destination(path, force=force)  # before anything is read
    with (
        database.connect(dsn, autocommit=True) as connection,
        reading.explained("export"),
        snapshot(connection),
    ):
        connection.execute(_AS_TEXT.encode())
        found = inventory.take(connection, redacted=redacted)
        try:
            return _write(connection, found, path, force, on_copied, on_copying)
        except OSError as error:
            raise cannot_write(path, error) from error
        except psycopg.errors.CharacterNotInRepertoire as error:
            raise PgflowMigrateError(
                "A value of this database is not UTF-8, which only one in SQL_ASCII can hold.",
                "Find it, and correct it: a JSON reader would refuse it, too.",
            ) from error


def _write(
    connection: psycopg.Connection[Any],
    found: inventory.Inventory,
    path: Path,
    force: bool,
    on_copied: Callable[[Copied], None],
    on_copying: Callable[[Copying], None],
) -> Exported:
    copied: list[Copied] = []
    with Writer(path, found.header, force=force) as writer:
        sections: tuple[Section, ...] = (*found.tables, *found.queues)
        for number, section in enumerate(sections, 1):
            name = f"{section.schema}.{section.name}"

            def on_rows(rows: int, name: str = name, number: int = number) -> None:
                on_copying(Copying(name, rows, number, len(sections)))

            # A rollback gives the locks back: those of thousands of queues would exhaust the lock table.
            with connection.transaction(force_rollback=True):
                rows = _section(connection, writer, section, found, on_rows)
            copied.append(Copied(name, rows))
            on_copied(copied[-1])
        size = writer.finish()
    return Exported(path, found.header, len(found.names), tuple(copied), size, found.unread)


def _section(
    connection: psycopg.Connection[Any],
    writer: Writer,
    section: Section,
    found: inventory.Inventory,
    on_rows: Callable[[int], None],
) -> int:
    on_rows(0)
    redacting = found.header.redacted
    if isinstance(section, Queue):
        section = inventory.with_position(connection, section)
        redactions = [redact.of_queue(column.name, column.type) for column in section.attributes]
        if redacting:
            section = _nullable(section, redactions)
        where: sql.Composable = sql.SQL("")
    else:
        redactions = [
            redact.nothing
            if (section.name, column) in found.retyped
            else redact.of_table(section.schema, section.name, column)
            for column in section.columns
        ]
        where = _of_queues(found.names) if section.schema == "pgmq" else sql.SQL("")
    writer.begin(section)
    query = sql.SQL("copy (select {} from only {}{}) to stdout").format(
        sql.SQL(", ").join(map(sql.Identifier, section.columns)),
        sql.Identifier(section.schema, section.name),
        where,
    )
    places = [(place, redaction) for place, redaction in enumerate(redactions) if redaction and redacting]
    with connection.cursor().copy(query) as copy:
        for number, values in enumerate(copy.rows(), 1):
            row = list(values)
            for place, redaction in places:
                row[place] = redaction(row[place])
            writer.row(row)
            if number % _INTERVAL == 0:
                on_rows(number)
    return writer.end_section()


def _of_queues(names: Sequence[str]) -> sql.Composable:
    """Metadata of the queues alone that pgflow uses, in every spelling."""
    return sql.SQL(" where lower(queue_name) = any ({}::text[])").format(sql.Literal(list(names)))


def _nullable(queue: Queue, redactions: Sequence[redact.Redaction | None]) -> Queue:
    """A column whose values are left out must be able to do without."""
    return replace(
        queue,
        attributes=tuple(
            replace(column, not_null=False) if redaction is redact.nothing else column
            for column, redaction in zip(queue.attributes, redactions, strict=True)
        ),
        indexes=tuple(
            index
            for index in queue.indexes
            if not any(
                redaction is redact.nothing and column.name in index.columns
                for column, redaction in zip(queue.attributes, redactions, strict=True)
            )
        ),
    )
