"""Rows as the program sees them and leaves them: its driver's reading and binding of values.

Its driver is node:sqlite, as of Node.js 24: every number is a double; an integer that a double may not hold
is not read at all; text that is not UTF-8 is mended; what has no column type cannot be bound.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

from pgflow_migrate.work_center.javascript import UNDEFINED, Value, number_to_string, truthy, utf8

MAX_SAFE_INTEGER = 2**53 - 1

Row = dict[str, Value]


class Refused(Exception):  # noqa: N818 - it is what the program throws, not ours
    """The program could not read or bind a value, and gave the step up; the text is a reason."""


def text(stored: bytes) -> str:
    """A TEXT value; bytes that are not UTF-8 become U+FFFD. For ``connection.text_factory``."""
    return stored.decode("utf-8", "replace")


def rows(cursor: sqlite3.Cursor) -> Iterator[Row]:
    """The cursor's rows by column; of columns with the same name the last counts.

    Raises:
        Refused: an integer is beyond what a double holds exactly.
    """
    names = [column[0] for column in cursor.description]
    for row in cursor:
        yield dict(zip(names, map(_read, names, row), strict=True))


def column(row: Row, name: str) -> Value:
    """``row.name``: undefined where the store has no such column."""
    return row.get(name, UNDEFINED)


def either(first: Value, *others: Value) -> Value:
    """``a || b || c``: the first that JavaScript takes for true, else the last."""
    value = first
    for other in others:
        if truthy(value):
            break
        value = other
    return value


def bound(value: Value, parameter: str) -> Any:
    """``value`` as sqlite3 takes it.

    Args:
        value: what is to be stored.
        parameter: the name of the column, for the error.

    Raises:
        Refused: an object, an array or undefined.
    """
    if isinstance(value, str):
        # Only text read from JSON may hold lone surrogates.
        return value if value.isascii() else utf8(value).decode()
    if value is None or isinstance(value, (float, bytes)):  # a NaN becomes NULL, here as there
        return value
    if isinstance(value, bool):
        return int(value)  # unlike a number: 1 in a TEXT column, not 1.0
    kind = "undefined" if value is UNDEFINED else "an array" if isinstance(value, list) else "an object"
    raise Refused(f"{kind} cannot be stored as {parameter}")


def shown(value: Value) -> str:
    """A key of a row in an error's sentence; never more than a line of it."""
    if isinstance(value, str):
        return f'"{value if len(value) <= 60 else value[:60] + "…"}"'
    if isinstance(value, float):
        return number_to_string(value)
    return "null" if value is None else "undefined" if value is UNDEFINED else f"a {type(value).__name__}"


def _read(name: str, stored: Any) -> Value:
    if type(stored) is int:
        if abs(stored) > MAX_SAFE_INTEGER:
            raise Refused(f"{name} is {stored}, which a JavaScript number cannot hold exactly")
        return float(stored)
    value: Value = stored
    return value
