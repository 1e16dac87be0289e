"""What the lines of an export say, and how each is written as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FORMAT = "pgflow-migrate export"
VERSION = 1
"""Raised by every change that an older reader would misread; a reader reads its own and older ones."""


@dataclass(frozen=True)
class Pgmq:
    """The PGMQ of a database.

    Attributes:
        version: the extension's; of plain SQL the oldest that has the functions found, as ``1.13``.
        form: ``extension`` or ``sql``.
        last_read_at: whether its queues have that column, which came with 1.10.0.
    """

    version: str
    form: str
    last_read_at: bool


@dataclass(frozen=True)
class Header:
    """The first line. It names no host, no role and no database.

    Attributes:
        release: what the catalogue was identified as; None when it matches no known release.
        closest: the release that it is closest to, whose tables and columns were copied.
        server: version of PostgreSQL, such as ``18.1``.
        pgmq: None when there is none, or schema pgmq may not be looked into.
        taken_at: time of the snapshot, ISO 8601 in UTC.
        redacted: whether payloads were replaced by placeholders.
        written_by: version of pgflow-migrate.
        left_out: what is no part of a copy, a sentence each.
        unread: what the role was not allowed to read, a sentence each.
    """

    release: str | None
    closest: str
    server: str
    pgmq: Pgmq | None
    taken_at: str
    redacted: bool
    written_by: str
    left_out: tuple[str, ...]
    unread: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """The header's line."""
        return {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Header:
        """The reverse.

        Raises:
            KeyError, TypeError: a value is missing or of another type.
        """
        pgmq = line["pgmq"]
        return cls(
            release=_optional(line["release"]),
            closest=_text(line["closest"]),
            server=_text(line["server"]),
            pgmq=None
            if pgmq is None
            else Pgmq(_text(pgmq["version"]), _text(pgmq["form"]), bool(pgmq["last_read_at"])),
            taken_at=_text(line["taken_at"]),
            redacted=bool(line["redacted"]),
            written_by=_text(line["written_by"]),
            left_out=tuple(map(_text, line["left_out"])),
            unread=tuple(map(_text, line["unread"])),
        )


@dataclass(frozen=True)
class Column:
    """A column of a queue's table.

    Attributes:
        name: its name.
        type: as ``format_type()`` spells it, without a length.
        not_null: whether it is.
        identity: ``always``, ``by default`` or empty.
        default: an expression of :data:`DEFAULTS`, or empty.
    """

    name: str
    type: str
    not_null: bool = False
    identity: str = ""
    default: str = ""


DEFAULTS = ("", "0", "now()", "clock_timestamp()")
"""The only defaults that are kept: a file holds values, and nothing of it is ever run as SQL."""


@dataclass(frozen=True)
class Index:
    """An index over columns; the primary key is one."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    primary: bool = False


@dataclass(frozen=True)
class Sequence:
    """The sequence of a queue's msg_id.

    Attributes:
        name: in schema pgmq.
        last_value: None when it could not be read.
        is_called: whether ``last_value`` has been given out.
        member: whether it is a member of extension pgmq.
    """

    name: str
    last_value: int | None
    is_called: bool
    member: bool


@dataclass(frozen=True)
class Table:
    """A table of schema pgflow, or pgmq.meta: that it has these columns, in this order."""

    schema: str
    name: str
    columns: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Its line."""
        return {"table": dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Table:
        """The reverse; raises as :meth:`Header.from_json`."""
        return cls(_text(line["schema"]), _text(line["name"]), tuple(map(_text, line["columns"])))


@dataclass(frozen=True)
class Queue:
    """A table of a queue: what PGMQ made of it, or somebody else.

    Attributes:
        queue: the queue's name in lower case.
        part: ``queue`` or ``archive``.
        unlogged: whether it is.
        member: whether it is a member of extension pgmq.
        attributes: its columns.
        indexes: those that are plain ones over columns.
        sequence: of msg_id, or None.
    """

    queue: str
    part: str
    unlogged: bool
    member: bool
    attributes: tuple[Column, ...]
    indexes: tuple[Index, ...]
    sequence: Sequence | None

    @property
    def schema(self) -> str:
        """PGMQ's."""
        return "pgmq"

    @property
    def name(self) -> str:
        """The table's name."""
        return {"queue": "q_", "archive": "a_"}[self.part] + self.queue

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns."""
        return tuple(column.name for column in self.attributes)

    def to_json(self) -> dict[str, Any]:
        """Its line."""
        return {"queue": dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Queue:
        """The reverse; raises as :meth:`Header.from_json`, and ValueError."""
        if line["part"] not in ("queue", "archive"):
            raise ValueError(line["part"])
        sequence = line["sequence"]
        return cls(
            queue=_text(line["queue"]),
            part=line["part"],
            unlogged=bool(line["unlogged"]),
            member=bool(line["member"]),
            attributes=tuple(Column(**column) for column in line["attributes"]),
            indexes=tuple(
                Index(**{**index, "columns": tuple(map(_text, index["columns"]))})
                for index in line["indexes"]
            ),
            sequence=None if sequence is None else Sequence(**sequence),
        )


Section = Table | Queue
"""What rows belong to."""

Row = list[str | None]
"""A row's values in the order of its section's columns: as PostgreSQL prints them, None for NULL."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _optional(value: Any) -> str | None:
    return None if value is None else _text(value)
