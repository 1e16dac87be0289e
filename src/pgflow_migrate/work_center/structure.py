"""The structure of a store as facts, a line each, and which of them each step of the chain makes."""

from __future__ import annotations

import functools
import re
import sqlite3
from collections.abc import Iterator

from pgflow_migrate.work_center import baseline
from pgflow_migrate.work_center.chain import STEPS
from pgflow_migrate.work_center.upgrade import upgrade_connection

_CHECK = re.compile(r"\bcheck\s*\(", re.IGNORECASE)
_QUOTED_OR_PARENTHESIS = re.compile(r"'(?:[^']|'')*'|[()]")


def facts(connection: sqlite3.Connection) -> dict[str, str]:
    """Tables, columns, checks, keys, indexes and triggers: what it is called, and what it is.

    White space in checks and triggers, and the order of columns, make no difference.
    """
    found = {}
    master = connection.execute(
        "select type, name, tbl_name, sql from sqlite_master where type in ('table', 'trigger') order by name"
    ).fetchall()
    for kind, name, table, sql in master:
        if kind == "trigger":
            found[f"trigger {name}"] = _one_line(sql)
        else:
            found.update(_table(connection, table, sql or ""))
    return found


@functools.cache
def expected() -> dict[str, dict[str, str]]:
    """By step, the facts that it makes, or makes otherwise, in a store that comes from version 22."""
    connection = sqlite3.connect(":memory:", isolation_level=None)
    try:
        baseline.create(connection)
        before, made = facts(connection), {}
        for step in STEPS:
            upgrade_connection(connection, now=0, to=step.name)
            after = facts(connection)
            made[step.name] = {name: fact for name, fact in after.items() if before.get(name) != fact}
            before = after
        return made
    finally:
        connection.close()


def _table(connection: sqlite3.Connection, table: str, sql: str) -> Iterator[tuple[str, str]]:
    yield f"table {table}", "there"
    for _, name, type_, not_null, default, key, _ in connection.execute(
        "select * from pragma_table_xinfo(?)", (table,)
    ).fetchall():
        parts = [type_, "not null" if not_null else "", f"default {default}" if default is not None else ""]
        parts.append(f"primary key {key}" if key else "")
        yield f"column {table}.{name}", " ".join(part for part in parts if part) or "without a type"
    for check in _checks(sql):
        yield f"check of {table}: {check}", "there"
    for _, _, parent, column, referenced, _, on_delete, _ in connection.execute(
        "select * from pragma_foreign_key_list(?)", (table,)
    ).fetchall():
        yield f"foreign key {table}.{column}", f"to {parent}.{referenced}, on delete {on_delete.lower()}"
    for _, name, unique, origin, partial in connection.execute(
        "select * from pragma_index_list(?)", (table,)
    ).fetchall():
        columns = ", ".join(
            str(column)
            for (column,) in connection.execute("select name from pragma_index_info(?)", (name,)).fetchall()
        )
        if origin == "c":
            kind = "unique on " if unique else "on "
            yield f"index {name}", f"{kind}{table}({columns}){' where …' if partial else ''}"
        elif origin == "u":
            yield f"unique {table}({columns})", "there"


def _checks(sql: str) -> Iterator[str]:
    for start in _CHECK.finditer(sql):
        depth = 1
        for mark in _QUOTED_OR_PARENTHESIS.finditer(sql, start.end()):
            depth += {"(": 1, ")": -1}.get(mark[0], 0)
            if depth == 0:
                yield _one_line(sql[start.end() : mark.start()])
                break


def _one_line(sql: str) -> str:
    return " ".join(sql.split())
