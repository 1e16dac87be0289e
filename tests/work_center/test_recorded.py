"""What the Work Center program itself left of stores, recorded, and what our chain leaves of them.

``recorded/*.json`` was written by running the program (Node.js 24.22.3, SQLite 3.54.1) on the base tables
of ``fixtures/work-center``: alone, step by step (``schema.json``: what each step adds to sqlite_master),
with the example, and with the rows of ``recorded/*.sql``.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable

import pytest
from tests.work_center.stores import recorded, rows, run, schema

from pgflow_migrate.work_center.chain import STEPS
from pgflow_migrate.work_center.upgrade import upgrade_connection

Memory = Callable[..., sqlite3.Connection]


def test_every_step_leaves_the_programs_structure_to_the_byte(memory: Memory) -> None:
    connection = memory()
    expected = json.loads(recorded("schema.json"))
    assert [*expected] == [str(step.number) for step in STEPS]
    before = schema(connection)
    for step in STEPS:
        upgrade_connection(connection, now=1000, to=step.name)
        after = schema(connection)
        added = [row for row in after if row not in before and row[2] != "schema_migrations"]
        wanted = [row for row in expected[str(step.number)] if row[2] != "schema_migrations"]
        assert added == sorted(wanted, key=str), step.name
        assert {row[1] for row in before} <= {row[1] for row in after}
        before = after
    (ledger,) = (row for row in before if row[1] == "schema_migrations")
    assert ledger in expected["23"]


@pytest.mark.parametrize("name", ["example", "odd"])
def test_every_row_is_the_programs_to_the_byte(memory: Memory, name: str) -> None:
    connection = memory(example=True) if name == "example" else memory(recorded(f"{name}.sql"))
    upgrade_connection(connection, now=1000 if name == "example" else 1_700_000_000_000)
    found, expected = rows(connection), json.loads(recorded(f"{name}.json"))
    assert [*found] == [*expected]
    for table, wanted in expected.items():
        assert found[table] == wanted, table


def test_an_older_engine_turns_becomes_the_programs_to_the_byte(memory: Memory) -> None:
    connection = memory(example=True)
    upgrade_connection(connection, now=1000, to="31")
    connection.execute("pragma foreign_keys = off")
    run(connection, recorded("older.sql"))
    connection.execute("pragma foreign_keys = on")
    upgrade_connection(connection, now=1_700_000_000_000)
    expected = json.loads(recorded("older.json"))
    assert schema(connection) == sorted(expected["schema"], key=str)
    found = rows(connection)
    assert [*found] == [*expected["rows"]]
    for table, wanted in expected["rows"].items():
        assert found[table] == wanted, table
