"""What tests ask of stores: to execute SQL in one, and for all that is in it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from pgflow_migrate.work_center.revision import statements

RECORDED = Path(__file__).with_name("recorded")


def run(connection: sqlite3.Connection, *sql: str) -> None:
    """Execute statements, each text one or several."""
    for text in sql:
        for statement in statements(text if text.rstrip().endswith(";") else f"{text};"):
            connection.execute(statement)


def recorded(name: str) -> str:
    """The text of a file of ``recorded/``."""
    return (RECORDED / name).read_text(encoding="utf-8")


def rows(connection: sqlite3.Connection) -> dict[str, list[list[str]]]:
    """Every row of every table, each value as its type and its text, as ``recorded/*.json`` has them."""
    tables = [
        name
        for (name,) in connection.execute(
            "select name from sqlite_master where type = 'table' order by name"
        ).fetchall()
    ]
    return {
        table: sorted(
            [_typed(value) for value in row] for row in connection.execute(f"select * from {table}")
        )
        for table in tables
    }


def schema(connection: sqlite3.Connection) -> list[list[Any]]:
    """sqlite_master, with the texts that it keeps."""
    found = connection.execute("select type, name, tbl_name, sql from sqlite_master").fetchall()
    return sorted(([*row] for row in found), key=str)


def everything(path: Path) -> tuple[Any, ...]:
    """What is in a store: structure and rows."""
    connection = sqlite3.connect(path)
    try:
        return schema(connection), rows(connection)
    finally:
        connection.close()


def state(path: Path) -> dict[str, tuple[bytes, int]]:
    """Every file beside ``path``, it too: bytes and time of change. Nothing else may have it open."""
    return {
        file.name: (file.read_bytes(), file.stat().st_mtime_ns)
        for file in sorted(path.parent.iterdir())
        if file.is_file() and not file.is_symlink()
    }


def _typed(value: object) -> str:
    kind = "null" if value is None else type(value).__name__
    return f"{kind}:{value.hex() if isinstance(value, bytes) else value}"
