"""``pgflow.set_vt_batch(queue_name, msg_ids, vt_offsets)``: a visibility of its own for each message."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[dict[str, Any]]

COLUMNS = ["msg_id", "read_ct", "enqueued_at", "vt", "message", "headers"]


@pytest.fixture(autouse=True)
def queue(db: Connection) -> None:
    """Queue ``Jobs`` with the messages 1, 2 (with headers) and 3; all read once."""
    db.execute("select pgmq.create('Jobs')")
    db.execute("select pgmq.send('Jobs', '{\"n\": 1}'::jsonb)")
    db.execute("select pgmq.send('Jobs', '{\"n\": 2}'::jsonb, '{\"h\": true}'::jsonb)")
    db.execute("select pgmq.send('Jobs', '{\"n\": 3}'::jsonb)")
    db.execute("select from pgmq.read('Jobs', 30, 3)")


def messages(rows: Callable[..., list[dict[str, Any]]]) -> dict[int, dict[str, Any]]:
    found = rows("select msg_id, read_ct, enqueued_at, vt, message, headers from pgmq.q_jobs")
    return {message["msg_id"]: message for message in found}


def test_sets_the_wall_clock_plus_each_offset_and_returns_the_updated_rows(
    rows: Callable[..., list[dict[str, Any]]], value: Callable[..., Any]
) -> None:
    before = messages(rows)
    earliest = value("select clock_timestamp()")
    returned = rows("select * from pgflow.set_vt_batch('Jobs', array[1, 2]::bigint[], array[100, 0])")
    latest = value("select clock_timestamp()")

    after = messages(rows)
    assert [list(message) for message in returned] == [COLUMNS, COLUMNS]
    assert {message["msg_id"]: message for message in returned} == {1: after[1], 2: after[2]}
    for message_id, offset in ((1, 100), (2, 0)):
        assert earliest <= after[message_id]["vt"] - timedelta(seconds=offset) <= latest
        unchanged = {name: after[message_id][name] for name in COLUMNS if name != "vt"}
        assert unchanged == {name: before[message_id][name] for name in COLUMNS if name != "vt"}
    assert after[3] == before[3]
    assert [after[message_id]["read_ct"] for message_id in (1, 2)] == [1, 1]
    assert [after[message_id]["headers"] for message_id in (1, 2)] == [None, {"h": True}]


def test_each_id_gets_the_offset_at_its_own_position(rows: Callable[..., list[dict[str, Any]]]) -> None:
    rows("select * from pgflow.set_vt_batch('Jobs', array[3, 1, 2]::bigint[], array[30, 10, 20])")
    after = messages(rows)
    gap = after[2]["vt"] - after[1]["vt"], after[3]["vt"] - after[2]["vt"]
    assert [round(seconds.total_seconds()) for seconds in gap] == [10, 10]


def test_a_negative_offset_lies_in_the_past(
    rows: Callable[..., list[dict[str, Any]]], value: Callable[..., Any]
) -> None:
    rows("select * from pgflow.set_vt_batch('Jobs', array[1]::bigint[], array[-60])")
    assert value("select vt < now() from pgmq.q_jobs where msg_id = 1") is True


def test_unknown_ids_are_left_out(rows: Callable[..., list[dict[str, Any]]]) -> None:
    returned = rows("select * from pgflow.set_vt_batch('Jobs', array[2, 99]::bigint[], array[5, 5])")
    assert [message["msg_id"] for message in returned] == [2]


def test_any_spelling_of_the_queue_addresses_the_same_table(
    rows: Callable[..., list[dict[str, Any]]],
) -> None:
    assert len(rows("select * from pgflow.set_vt_batch('jOBS', array[1]::bigint[], array[5])")) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        "null, array[1]",
        "array[1]::bigint[], null",
        "null, null",
        "'{}', '{}'",
    ],
)
def test_null_and_empty_arrays_change_nothing(
    db: Connection,
    rows: Callable[..., list[dict[str, Any]]],
    state_of: Callable[[Connection], object],
    arguments: str,
) -> None:
    before = state_of(db)
    assert rows(f"select * from pgflow.set_vt_batch('Jobs', {arguments})") == []
    assert state_of(db) == before


@pytest.mark.parametrize(
    ("arguments", "lengths"),
    [
        ("array[1, 2]::bigint[], array[5]", "(2) must equal vt_offsets length (1)"),
        ("array[1]::bigint[], array[5, 5, 5]", "(1) must equal vt_offsets length (3)"),
        ("'{}', array[5]", "(<NULL>) must equal vt_offsets length (1)"),
        ("array[1]::bigint[], '{}'", "(1) must equal vt_offsets length (<NULL>)"),
    ],
)
def test_arrays_of_different_lengths_are_refused(
    refused: Callable[..., psycopg.Error], arguments: str, lengths: str
) -> None:
    error = refused(f"select pgflow.set_vt_batch('Jobs', {arguments})")
    assert (error.sqlstate, error.diag.message_primary) == ("P0001", f"msg_ids length {lengths}")


@pytest.mark.parametrize("arrays", ["array[1]::bigint[], array[5]", "'{}', '{}'"])
def test_a_missing_queue_is_refused(refused: Callable[..., psycopg.Error], arrays: str) -> None:
    error = refused(f"select pgflow.set_vt_batch('Ghost', {arrays})")
    assert (error.sqlstate, error.diag.message_primary) == (
        "42P01",
        'relation "pgmq.q_ghost" does not exist',
    )


@pytest.mark.parametrize("name", ["a$b", "a;b", "a--b", "a'b"])
def test_a_name_that_pgmq_refuses_is_refused(refused: Callable[..., psycopg.Error], name: str) -> None:
    error = refused("select pgflow.set_vt_batch(%s, array[1]::bigint[], array[5])", name)
    assert error.sqlstate == "P0001"
    assert error.diag.message_primary is not None
    assert error.diag.message_primary.startswith("queue name contains invalid characters")
