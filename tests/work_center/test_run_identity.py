"""Step 28, by values worked out by hand."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from pgflow_migrate.work_center.errors import StepRefused
from pgflow_migrate.work_center.upgrade import upgrade_connection

Memory = Callable[..., sqlite3.Connection]
ITEMS = (
    "insert into work_items (id) values ('w')",
    "insert into actions (id, work_item_id) values ('a', 'w'), ('b', 'w')",
)


def _runs(connection: sqlite3.Connection) -> dict[str, tuple[object, ...]]:
    found = connection.execute("select id, ordinal, terminal_status, terminal_at from runs order by id")
    return {row[0]: row[1:] for row in found}


def _insert(*values: str) -> str:
    columns = "id, action_id, work_item_id, status, started_at, ended_at"
    return f"insert into runs ({columns}) values {', '.join(values)}"


def test_runs_are_numbered_within_their_action_by_start_then_id(memory: Memory) -> None:
    connection = memory(
        *ITEMS,
        _insert(
            "('r3', 'a', 'w', 'running', 5, null)",
            "('r2', 'a', 'w', 'running', 9, null)",
            "('r1', 'a', 'w', 'running', 9, null)",
            "('r0', 'a', 'w', 'running', null, null)",
            "('s', 'b', 'w', 'running', 7, null)",
        ),
    )
    upgrade_connection(connection, now=1, to="28")
    ordinals = {run: found[0] for run, found in _runs(connection).items()}
    assert ordinals == {"r0": 1, "r3": 2, "r1": 3, "r2": 4, "s": 1}


def test_ended_runs_get_their_terminal_identity_and_running_ones_none(memory: Memory) -> None:
    connection = memory(
        *ITEMS,
        _insert(
            "('running', 'a', 'w', 'running', 1, 8)",
            "('completed', 'a', 'w', 'completed', 2, 8)",
            "('no-end', 'a', 'w', 'failed', 3, null)",
            "('no-times', 'a', 'w', 'failed', null, null)",
            "('end-zero', 'a', 'w', 'failed', 4, 0)",
            "('no-status', 'a', 'w', null, 5, 6)",
            "('empty-status', 'a', 'w', '', 6, 7)",
        ),
    )
    upgrade_connection(connection, now=1, to="28")
    assert {run: found[1:] for run, found in _runs(connection).items()} == {
        "running": (None, None),
        "completed": ("completed", 8),
        "no-end": ("failed", 3),
        "no-times": ("failed", None),
        "end-zero": ("failed", 0),
        "no-status": (None, None),  # null is not unequal to 'running'
        "empty-status": ("", 7),
    }


def test_runs_without_an_action_are_numbered_together(memory: Memory) -> None:
    connection = memory(_insert("('r1', null, null, 'x', 1, 1)", "('r2', null, null, 'x', 2, 2)"))
    upgrade_connection(connection, now=1, to="28")
    assert _runs(connection) == {"r1": (1, "x", 1), "r2": (2, "x", 2)}


def test_numbers_that_are_there_are_counted_anew(memory: Memory) -> None:
    connection = memory(
        *ITEMS,
        "alter table runs add column ordinal integer",
        "insert into runs (id, action_id, started_at, ordinal) values ('r1', 'a', 1, 7), ('r2', 'a', 2, 8)",
    )
    upgrade_connection(connection, now=1, to="28")
    assert {run: found[0] for run, found in _runs(connection).items()} == {"r1": 1, "r2": 2}
    columns = [row[1] for row in connection.execute("pragma table_info(runs)")]
    assert columns[-3:] == ["ordinal", "terminal_status", "terminal_at"]


def test_two_runs_of_one_action_cannot_have_the_same_number(memory: Memory) -> None:
    connection = memory(*ITEMS, _insert("('r1', 'a', 'w', 'running', 1, null)"))
    upgrade_connection(connection, now=1, to="28")
    with pytest.raises(
        sqlite3.IntegrityError, match=r"UNIQUE constraint failed: runs.action_id, runs.ordinal"
    ):
        connection.execute("insert into runs (id, action_id, ordinal) values ('r2', 'a', 1)")


def test_two_runs_of_an_action_that_is_bytes_are_refused(memory: Memory) -> None:
    # To the program each value of bytes is an object of its own, so both runs would be number 1.
    connection = memory("pragma foreign_keys = off")
    connection.execute("insert into runs (id, action_id) values ('r1', x'01'), ('r2', x'01')")
    with pytest.raises(StepRefused) as caught:
        upgrade_connection(connection, now=1, to="28")
    assert caught.value.reason == "UNIQUE constraint failed: runs.action_id, runs.ordinal"
    assert [row[1] for row in connection.execute("pragma table_info(runs)")][-1] == "checkpoint"


def test_a_key_that_is_no_javascript_number_is_refused(memory: Memory) -> None:
    connection = memory(
        "drop table runs",
        "create table runs (id integer, action_id text, status text, started_at integer, ended_at integer)",
        "insert into runs (id) values (9007199254740993)",
    )
    with pytest.raises(StepRefused) as caught:
        upgrade_connection(connection, now=1)
    assert caught.value.message == (
        "Step 28-run-identity cannot be done: id is 9007199254740993,"
        " which a JavaScript number cannot hold exactly."
    )
    assert caught.value.details == (
        "Done before, and kept: 23-conversation-stream, 24-action-stream, 25-engine-turns,"
        " 26-operation-identity, 27-coordinator-mailbox.",
    )
