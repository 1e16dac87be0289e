"""What the lines of an export say, and how each is written as JSON."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FORMAT = "pgflow-migrate export"
VERSION = 1
"""Raised by every change that an older reader would misread; a reader reads its own and older ones."""

# Of releases that are still to come, too. It becomes the name of a file.
_RELEASE = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]{0,62}")


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

    @classmethod
    def from_json(cls, value: Any) -> Pgmq:
        """Of a header; raises as :meth:`Header.from_json`."""
        return cls(
            version=_text(value["version"]),
            form=_one_of(value["form"], "extension", "sql"),
            last_read_at=_flag(value["last_read_at"]),
        )


@dataclass(frozen=True)
class Header:
    """The first line. It names no host, no database and no role, not even the one that exported.

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
            KeyError, TypeError, ValueError: a value is missing, of another type, or cannot be one.
        """
        release, pgmq = line["release"], line["pgmq"]
        return cls(
            release=None if release is None else _release(release),
            closest=_release(line["closest"]),
            server=_text(line["server"]),
            pgmq=None if pgmq is None else Pgmq.from_json(pgmq),
            taken_at=_text(line["taken_at"]),
            redacted=_flag(line["redacted"]),
            written_by=_text(line["written_by"]),
            left_out=_texts(line["left_out"]),
            unread=_texts(line["unread"]),
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

    @classmethod
    def from_json(cls, value: Any) -> Column:
        """Of a queue's line; raises as :meth:`Header.from_json`."""
        return cls(
            name=_text(value["name"]),
            type=_text(value["type"]),
            not_null=_flag(value["not_null"]),
            identity=_one_of(value["identity"], "", "always", "by default"),
            default=_one_of(value["default"], *DEFAULTS),
        )


DEFAULTS = ("", "0", "now()", "clock_timestamp()")
"""The only defaults that are kept: a file holds values, and nothing of it is ever run as SQL."""


@dataclass(frozen=True)
class Index:
    """An index over columns; the primary key is one."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    primary: bool = False

    @classmethod
    def from_json(cls, value: Any) -> Index:
        """Of a queue's line; raises as :meth:`Header.from_json`."""
        return cls(
            name=_text(value["name"]),
            columns=_texts(value["columns"]),
            unique=_flag(value["unique"]),
            primary=_flag(value["primary"]),
        )


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

    @classmethod
    def from_json(cls, value: Any) -> Sequence:
        """Of a queue's line; raises as :meth:`Header.from_json`."""
        last_value = value["last_value"]
        return cls(
            name=_text(value["name"]),
            last_value=None if last_value is None else _whole(last_value),
            is_called=_flag(value["is_called"]),
            member=_flag(value["member"]),
        )


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
        return cls(_text(line["schema"]), _text(line["name"]), _texts(line["columns"]))


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
        """The reverse; raises as :meth:`Header.from_json`."""
        sequence = line["sequence"]
        return cls(
            queue=_text(line["queue"]),
            part=_one_of(line["part"], "queue", "archive"),
            unlogged=_flag(line["unlogged"]),
            member=_flag(line["member"]),
            attributes=tuple(map(Column.from_json, _list(line["attributes"]))),
            indexes=tuple(map(Index.from_json, _list(line["indexes"]))),
            sequence=None if sequence is None else Sequence.from_json(sequence),
        )


Section = Table | Queue
"""What rows belong to."""

Row = list[str | None]
"""A row's values in the order of its section's columns: as PostgreSQL prints them, None for NULL."""


def storable(value: str) -> bool:
    """Whether PostgreSQL can hold a text: JSON can also spell NUL, and halves of surrogate pairs."""
    try:
        return "\0" not in value and (value.isascii() or bool(value.encode()))
    except UnicodeEncodeError:
        return False


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    if not storable(value):
        raise ValueError(value)
    return value


def _one_of(value: Any, *values: str) -> str:
    if _text(value) not in values:
        raise ValueError(value)
    return str(value)


def _release(value: Any) -> str:
    if not _RELEASE.fullmatch(_text(value)):
        raise ValueError(value)
    return str(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(value)
    return value


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))
