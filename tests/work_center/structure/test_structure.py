"""What each step adds to the structure of a store, against the table in ``steps.txt``."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from tests.work_center.structure.lines import expected, lines

from pgflow_migrate.work_center.chain import STEPS
from pgflow_migrate.work_center.upgrade import upgrade_connection

Memory = Callable[..., sqlite3.Connection]


def test_every_step_adds_what_the_table_says_and_takes_nothing_away(memory: Memory) -> None:
    connection = memory(example=True)
    before = lines(connection)
    assert [*expected()] == [step.name for step in STEPS]
    for step in STEPS:
        upgrade_connection(connection, now=1000, to=step.name)
        after = lines(connection)
        assert sorted(line for line in after if line not in before) == sorted(expected()[step.name]), (
            step.name
        )
        assert [line for line in before if line not in after] == []
        before = after
