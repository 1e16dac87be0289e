"""That the work grows with the rows: counted, not timed. ``make benchmark-work-center`` measures."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pgflow_migrate.work_center import values
from pgflow_migrate.work_center.progress import RowsRead
from pgflow_migrate.work_center.upgrade import upgrade_connection

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from work_center import Size, populate

_EACH = 100  # of SQLite's instructions, between two counts
SMALL = Size(work_items=100, messages=5, events=500, inputs=250)


@dataclass
class Counted:
    """What an upgrade has done: statements, SQLite's instructions, rows inserted, reports of progress."""

    statements: int = 0
    instructions: int = 0
    rows: dict[str, int] = field(default_factory=dict)
    reports: list[RowsRead] = field(default_factory=list)


def _counted(path: Path, size: Size) -> Counted:
    populate(path, size)
    counted = Counted()

    def statement(_: str) -> None:
        counted.statements += 1

    def instructions() -> int:
        counted.instructions += _EACH
        return 0

    def listen(event: object) -> None:
        if isinstance(event, RowsRead):
            counted.reports.append(event)

    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.text_factory = values.text
        connection.execute("pragma synchronous = off")
        connection.set_trace_callback(statement)
        connection.set_progress_handler(instructions, _EACH)
        result = upgrade_connection(connection, now=1000, on_progress=listen)
    (counted.rows,) = (done.rows for done in result.steps if done.rows)
    return counted


def test_four_times_the_rows_are_four_times_the_work(tmp_path: Path) -> None:
    few = _counted(tmp_path / "few.db", SMALL)
    many = _counted(tmp_path / "many.db", SMALL.part(4))
    assert few.rows == {
        "conversations": 100,
        "conversation_entries": 500,
        "action_entries": 500,
        "engine_turns": 125,
    }
    assert many.rows == {table: 4 * count for table, count in few.rows.items()}
    # What does not grow with the rows makes it less than four times.
    assert many.statements < 4 * few.statements
    assert many.instructions == pytest.approx(4 * few.instructions, rel=0.05)


def test_progress_is_told_of_every_thousand_rows(tmp_path: Path) -> None:
    found = _counted(tmp_path / "store.db", Size(work_items=1001, messages=1, events=2500, inputs=0))
    assert [(event.table, event.done, event.of) for event in found.reports] == [
        ("work_items", 0, 1001),
        ("work_items", 1000, 1001),
        ("events", 0, 2500),
        ("events", 1000, 2500),
        ("events", 2000, 2500),
    ]
