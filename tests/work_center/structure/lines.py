"""A store's structure as lines for a person, from what SQLite's pragmas say; and the expected ones."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_EXPECTED = Path(__file__).with_name("steps.txt")


def expected() -> dict[str, list[str]]:
    """By step, the lines that it adds; an indented line of the file belongs to the table above it."""
    steps: dict[str, list[str]] = {}
    table = ""
    for line in _EXPECTED.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            added = steps[line.strip("[]")] = []
        elif line.startswith(" "):
            added.append(f"{table}: {' '.join(line.split())}")
        elif line and not line.startswith("#"):
            table = line.removeprefix("table ")
            if line.startswith(("table ", "index ", "trigger ")):
                added.append(line)
    return steps


def lines(connection: sqlite3.Connection) -> list[str]:
    """Every table, column, key, index and trigger of a store."""
    found: list[str] = []
    for kind, name, table, sql in connection.execute(
        "select type, name, tbl_name, sql from sqlite_master order by name"
    ).fetchall():
        if kind == "table":
            found += [f"table {name}", *(f"{name}: {line}" for line in _table(connection, name))]
        elif kind == "trigger":
            words = " ".join(sql.split()).partition(f"{name} ")[2].partition(" WHEN ")[0]
            found.append(f"trigger {name} {words.lower()}")
        elif kind == "index" and sql:
            (unique,) = (row[2] for row in _pragma(connection, "index_list", table) if row[1] == name)
            keys = _keys(connection, name)
            found.append(f"index {name} on {table} ({keys}){' unique' if unique else ''}")
    return found


def _table(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    references = {
        row[3]: f"-> {row[2]}.{row[4]} on delete {row[6].lower()}"
        for row in _pragma(connection, "foreign_key_list", table)
    }
    for _, name, type_, not_null, default, key, hidden in _pragma(connection, "table_xinfo", table):
        parts = [name, type_, "key" if key else "", "not null" if not_null else ""]
        parts += [
            "" if default is None else f"= {default}",
            references.get(name, ""),
            "hidden" if hidden else "",
        ]
        yield " ".join(part for part in parts if part)
    for _, index, _, origin, _ in _pragma(connection, "index_list", table):
        if origin == "u":
            yield f"unique ({_keys(connection, index)})"


def _keys(connection: sqlite3.Connection, index: str) -> str:
    return ", ".join(str(row[2]) for row in _pragma(connection, "index_info", index))


def _pragma(connection: sqlite3.Connection, pragma: str, of: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"select * from pragma_{pragma}(?)", (of,)).fetchall()
