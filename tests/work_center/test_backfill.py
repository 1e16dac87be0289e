"""Step 30, by values worked out by hand. What the program makes of odd values is in test_recorded.py."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from pgflow_migrate.work_center.errors import StepFailed, StepRefused
from pgflow_migrate.work_center.upgrade import upgrade_connection

Memory = Callable[..., sqlite3.Connection]
NOW = 1000


def _id(kind: str, key: str) -> str:
    return f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


def _item(messages: Any, created: str = "10", updated: str = "11") -> str:
    text = messages if isinstance(messages, str) else json.dumps(messages)
    quoted = text.replace("'", "''")
    return f"insert into work_items values ('w', '{quoted}', {created}, {updated})"


def _upgraded(connection: sqlite3.Connection, **options: Any) -> sqlite3.Connection:
    upgrade_connection(connection, **{"now": NOW, "to": "30", **options})
    connection.row_factory = sqlite3.Row
    return connection


def _entries(connection: sqlite3.Connection, table: str = "conversation_entries") -> list[dict[str, Any]]:
    return [dict(row) for row in connection.execute(f"select * from {table} order by sequence, id")]


def _entry(memory: Memory, message: Any, created: str = "10", updated: str = "11") -> dict[str, Any]:
    (entry,) = _entries(_upgraded(memory(_item([message], created, updated))))
    return entry


def test_a_message_becomes_an_entry(memory: Memory) -> None:
    message = {
        "id": "m1",
        "role": "assistant",
        "status": "running",
        "text": "hello",
        "attachments": [{"name": "a", "at": 1}],
        "turnId": "t1",
        "createdAt": 5,
        "updatedAt": 6,
    }
    key = "22:work_items.messages:w:m1:1"
    assert _entry(memory, message) == {
        "id": _id("legacy-conversation", key),
        "conversation_id": "work-item:w",
        "work_item_id": "w",
        "sequence": 1,
        "kind": "message",
        "role": "assistant",
        "status": "running",
        "text": "hello",
        "attachments": '[{"name":"a","at":1}]',
        "turn_id": "t1",
        "source_key": key,
        "payload": (
            '{"attachments":[{"at":1,"name":"a"}],"createdAt":5,"id":"m1","role":"assistant",'
            '"status":"running","text":"hello","turnId":"t1","updatedAt":6}'
        ),
        "created_at": 5,
        "updated_at": 6,
    }


def test_an_empty_message_gets_defaults_and_the_hash_of_its_content(memory: Memory) -> None:
    entry = _entry(memory, {})
    assert entry["source_key"] == f"22:work_items.messages:w:legacy:{hashlib.sha256(b'{}').hexdigest()}:1"
    assert (entry["role"], entry["status"], entry["text"]) == ("legacy_instruction", "completed", "")
    assert (entry["attachments"], entry["turn_id"], entry["payload"]) == ("[]", None, "{}")
    assert (entry["created_at"], entry["updated_at"]) == (10, 11)


@pytest.mark.parametrize(
    ("message", "identity"),
    [
        ({"id": "m", "turnId": "t"}, "m"),
        ({"id": "", "turnId": "t"}, "t"),
        ({"id": 0, "turnId": 7}, "7"),
        ({"id": True}, "true"),
        ({"id": [1, [2, None]]}, "1,2,"),
        ({"id": {"a": 1}}, "[object Object]"),
        ({"id": 1e21}, "1e+21"),
        ({"role": "user"}, "user:" + hashlib.sha256(b'{"role":"user"}').hexdigest()),
        ({"role": ""}, "legacy:" + hashlib.sha256(b'{"role":""}').hexdigest()),
        ([], "legacy:" + hashlib.sha256(b"[]").hexdigest()),
    ],
)
def test_a_message_is_known_by_id_or_turn_or_role_and_content(
    memory: Memory, message: Any, identity: str
) -> None:
    assert _entry(memory, message)["source_key"] == f"22:work_items.messages:w:{identity}:1"


@pytest.mark.parametrize(
    ("times", "created", "updated"),
    [
        ({}, 10, 11),
        ({"createdAt": 5}, 5, 5),
        ({"createdAt": 5, "updatedAt": 6}, 5, 6),
        ({"updatedAt": 6}, 10, 6),
        ({"createdAt": 0, "updatedAt": 0}, 10, 11),
        ({"createdAt": -5}, -5, -5),
        ({"createdAt": " 0x10 "}, 16, 16),
        ({"createdAt": "soon", "updatedAt": "1e2"}, 10, 100),
        ({"createdAt": True}, 1, 1),
        ({"createdAt": [9]}, 9, 9),
        ({"createdAt": {}}, 10, 11),
        ({"createdAt": 1.5}, 1.5, 1.5),
    ],
)
def test_times_are_what_javascript_takes_for_numbers(
    memory: Memory, times: dict[str, Any], created: float, updated: float
) -> None:
    entry = _entry(memory, times)
    assert (entry["created_at"], entry["updated_at"]) == (created, updated)


def test_a_work_item_without_times_gets_the_time_of_the_upgrade(memory: Memory) -> None:
    connection = _upgraded(memory(_item([{}], "0", "null")))
    assert [tuple(row) for row in connection.execute("select * from conversations")] == [
        ("work-item:w", "w", "active", NOW, NOW)
    ]
    assert [(e["created_at"], e["updated_at"]) for e in _entries(connection)] == [(NOW, NOW)]


def test_what_is_no_message_leaves_a_gap_in_the_sequence(memory: Memory) -> None:
    connection = _upgraded(memory(_item([None, {"id": "a"}, 3, "text", True, {"id": "b"}])))
    assert [(e["sequence"], e["source_key"][-3:]) for e in _entries(connection)] == [(2, "a:1"), (6, "b:1")]


def test_the_same_message_twice_is_told_apart_by_its_occurrence(memory: Memory) -> None:
    messages = [{"text": "x", "role": "user"}, {"id": "m"}, {"role": "user", "text": "x"}, {"turnId": "m"}]
    entries = _entries(_upgraded(memory(_item(messages))))
    content = hashlib.sha256(b'{"role":"user","text":"x"}').hexdigest()
    assert [e["source_key"].removeprefix("22:work_items.messages:w:") for e in entries] == [
        f"user:{content}:1",
        "m:1",
        f"user:{content}:2",
        "m:2",
    ]


@pytest.mark.parametrize("messages", ["", "[", "{}", "null", '"x"', "3", "[NaN]", "[1,]", "\ufeff[]"])
def test_messages_that_are_no_list_make_a_conversation_without_entries(memory: Memory, messages: str) -> None:
    connection = _upgraded(memory(_item(messages)))
    assert len(connection.execute("select * from conversations").fetchall()) == 1
    assert _entries(connection) == []


def test_a_number_in_a_text_column_is_stored_as_the_driver_binds_it(memory: Memory) -> None:
    entry = _entry(memory, {"id": "m", "role": 5, "status": 2.5, "turnId": True})
    assert (entry["role"], entry["status"], entry["turn_id"]) == ("5.0", "2.5", "1")


def test_lone_surrogates_are_escaped_in_json_and_mended_elsewhere(memory: Memory) -> None:
    entry = _entry(memory, {"id": "\ud83d", "text": "a\ud83d\ude00"})
    assert entry["source_key"] == "22:work_items.messages:w:\ufffd:1"
    assert entry["id"] == _id("legacy-conversation", entry["source_key"])
    assert (entry["text"], entry["payload"]) == ("a\U0001f600", '{"id":"\\ud83d","text":"a\U0001f600"}')


INPUTS = (
    "insert into work_items (id) values ('w')",
    "insert into actions values ('a', 'w', 'ready', 2, 'h'), ('d', 'w', 'done', 1, null)",
    "insert into runs (id, action_id, work_item_id, status, owner_boot_id, lease_epoch) values"
    " ('r', 'a', 'w', 'completed', 'boot', 3), ('n', 'a', 'w', 'completed', '', 3)",
)


def _event(
    number: int, data: str = "{}", action: str = "a", created: str = "7", generation: str = "1"
) -> str:
    return (
        f"insert into events values ({number}, 'w', '{action}', 'action.input_added', '{data}',"
        f" {created}, {generation})"
    )


def _pending(number: int, run: str = "'r'", consumed: str = "null", superseded: str = "null") -> str:
    values = f"({number}, 'a', 'w', {run}, 'text', '[1]', {consumed}, {superseded})"
    return f"insert into pending_action_inputs values {values}"


def test_a_consumed_input_becomes_an_entry_and_a_turn(memory: Memory) -> None:
    connection = _upgraded(memory(*INPUTS, _event(1), _pending(1, consumed="20")))
    key = "22:pending_action_inputs:1"
    turn = _id("legacy-engine-turn", f"{key}:legacy-turn")
    assert _entries(connection, "action_entries") == [
        {
            "id": _id("legacy-action-entry", key),
            "work_item_id": "w",
            "action_id": "a",
            "run_id": "r",
            "sequence": 1,
            "kind": "message",
            "role": "user",
            "status": "consumed",
            "text": "text",
            "attachments": "[1]",
            "source_key": key,
            "payload": '{"eventId":1}',
            "engine_turn_id": turn,
            "created_at": 7,
            "updated_at": 20,
            "consumed_at": 20,
        }
    ]
    (made,) = [dict(row) for row in connection.execute("select * from engine_turns")]
    assert {name: value for name, value in made.items() if value not in (None, 0, "[]", "{}", "")} == {
        "id": turn,
        "work_item_id": "w",
        "action_id": "a",
        "run_id": "r",
        "ordinal": 1,
        "status": "legacy_imported",
        "owner_boot_id": "boot",
        "lease_epoch": 3,
        "request_key": f"{key}:legacy-turn",
        "dispatch_capability": "unknown",
        "responded_at": 20,
        "consumed_at": 20,
        "created_at": 7,
        "updated_at": 20,
    }


@pytest.mark.parametrize(
    ("pending", "status", "updated", "consumed", "turn"),
    [
        (_pending(1), "pending", 7, None, False),
        (_pending(1, consumed="20"), "consumed", 20, 20, True),
        (_pending(1, superseded="30"), "cancelled", 30, None, False),
        (_pending(1, consumed="20", superseded="30"), "cancelled", 20, 20, False),
        (_pending(1, superseded="0"), "cancelled", 7, None, False),
        (_pending(1, consumed="0"), "consumed", 7, None, True),
        (_pending(1, run="null", consumed="20"), "consumed", 20, 20, False),
        (_pending(1, run="''", consumed="20"), "consumed", 20, 20, False),
        (_pending(1, run="'n'", consumed="20"), "consumed", 20, 20, False),
    ],
)
def test_the_status_of_an_input(
    memory: Memory, pending: str, status: str, updated: int, consumed: int | None, turn: bool
) -> None:
    connection = _upgraded(memory(*INPUTS, _event(1), pending))
    (entry,) = _entries(connection, "action_entries")
    assert (entry["status"], entry["updated_at"], entry["consumed_at"]) == (status, updated, consumed)
    assert (entry["engine_turn_id"] is not None) == turn
    assert len(connection.execute("select * from engine_turns").fetchall()) == turn


def test_turns_and_entries_go_on_from_those_that_are_there(memory: Memory) -> None:
    connection = memory(*INPUTS, _event(1), _pending(1, consumed="20"), _event(2, '{"text":"t"}'))
    upgrade_connection(connection, now=NOW, to="29")
    connection.execute(
        "insert into action_entries (id, work_item_id, action_id, sequence, kind, status, source_key,"
        " created_at, updated_at) values ('e', 'w', 'a', 5, 'control', 'pending', 's', 1, 1)"
    )
    connection.execute(
        "insert into engine_turns (id, work_item_id, action_id, run_id, ordinal, status, owner_boot_id,"
        " lease_epoch, request_key, created_at, updated_at)"
        " values ('t', 'w', 'a', 'r', 8, 'prepared', 'b', 1, 'k', 1, 1)"
    )
    _upgraded(connection)
    sequences = [(e["sequence"], e["source_key"]) for e in _entries(connection, "action_entries")]
    assert sequences == [(5, "s"), (6, "22:pending_action_inputs:1"), (7, "22:events:2")]
    ordinals = connection.execute("select ordinal from engine_turns order by ordinal").fetchall()
    assert [row[0] for row in ordinals] == [8, 9]


def test_an_event_that_was_never_pending_is_consumed_by_a_ready_action_and_rejected_by_another(
    memory: Memory,
) -> None:
    connection = _upgraded(
        memory(
            *INPUTS,
            _event(1, '{"text":"t","inputId":"i","attachments":[{"b":1,"a":2}]}'),
            _event(2, "bad", action="d", generation="0"),
            _event(3, '{"text":5,"inputId":0}', action="d", created="0", generation="null"),
        )
    )
    entries = {entry["source_key"]: entry for entry in _entries(connection, "action_entries")}
    ready, bad, odd = (entries[f"22:events:{number}"] for number in (1, 2, 3))
    assert (ready["status"], ready["text"], ready["attachments"]) == ("consumed", "t", '[{"b":1,"a":2}]')
    assert (ready["created_at"], ready["updated_at"], ready["consumed_at"]) == (7, 7, 7)
    assert (ready["run_id"], ready["engine_turn_id"], ready["sequence"]) == (None, None, 1)
    assert ready["payload"] == (
        '{"currentGeneration":2,"currentSpecHash":"h","eventId":1,"inputId":"i",'
        '"migrationDisposition":"consumed","sourceGeneration":1}'
    )
    assert (bad["status"], bad["text"], bad["attachments"], bad["consumed_at"]) == (
        "rejected",
        "",
        "[]",
        None,
    )
    # A generation of 0 is written as null: the program takes 0 for none.
    assert bad["payload"] == (
        '{"currentGeneration":1,"currentSpecHash":"","eventId":2,"inputId":null,'
        '"migrationDisposition":"rejected","sourceGeneration":null}'
    )
    assert (odd["text"], odd["created_at"], odd["sequence"]) == ("", NOW, 2)


def test_the_source_version_is_in_every_key(memory: Memory) -> None:
    connection = _upgraded(
        memory(
            *INPUTS,
            "update work_items set messages = '[{}]'",
            _event(1),
            _pending(1, consumed="1"),
            _event(2),
        ),
        source_schema_version=17,
    )
    keys = [row[0] for row in connection.execute("select source_key from conversation_entries")]
    keys += [row[0] for row in connection.execute("select source_key from action_entries order by 1")]
    keys += [row[0] for row in connection.execute("select request_key from engine_turns")]
    assert [key.split(":")[0] for key in keys] == ["17"] * 4


def test_a_source_version_of_zero_is_22(memory: Memory) -> None:
    connection = _upgraded(memory(_item([{"id": "m"}])), source_schema_version=0)
    assert _entries(connection)[0]["source_key"] == "22:work_items.messages:w:m:1"


def test_a_second_backfill_adds_nothing(memory: Memory) -> None:
    connection = memory(example=True)
    upgrade_connection(connection, now=NOW)
    before = list(connection.iterdump())
    connection.execute("delete from schema_migrations where name = '30-backfill-projections'")
    result = upgrade_connection(connection, now=NOW)
    assert [(done.step, done.outcome, done.rows) for done in result.steps] == [
        ("30-backfill-projections", "applied", {})
    ]
    assert sorted(connection.iterdump()) == sorted(before)


def _said(*messages: Any) -> str:
    return f"update work_items set messages = '{json.dumps(messages)}'"


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        (
            _said({"id": "a"}, {"role": {"a": 1}}),
            'work item "w": message 2: an object cannot be stored as role',
        ),
        (_said({"status": [1]}), 'work item "w": message 1: an array cannot be stored as status'),
        (
            _said({"id": {"toString": 1}}),
            'work item "w": message 1: Cannot convert object to primitive value',
        ),
        (
            "update work_items set created_at = 9007199254740992",
            "created_at is 9007199254740992, which a JavaScript number cannot hold exactly",
        ),
        (_event(4, "null"), "event 4: Cannot read properties of null (reading 'text')"),
        (_event(5).replace("'w'", "'gone'"), "event 5: FOREIGN KEY constraint failed"),
        (
            f"{_event(6)}; {_pending(6, run='null')}; update pending_action_inputs set work_item_id = null",
            "pending input of event 6: NOT NULL constraint failed: action_entries.work_item_id",
        ),
    ],
)
def test_what_the_program_cannot_store_is_refused_and_named(memory: Memory, sql: str, reason: str) -> None:
    connection = memory(*INPUTS, *sql.split("; "))
    with pytest.raises(StepRefused) as caught:
        upgrade_connection(connection, now=NOW)
    assert caught.value.message == f"Step 30-backfill-projections cannot be done: {reason}."
    for table in ("conversations", "conversation_entries", "action_entries", "engine_turns"):
        assert connection.execute(f"select count(*) from {table}").fetchone()[0] == 0
    last = connection.execute("select max(name) from schema_migrations").fetchone()[0]
    assert last == "29-runtime-indexes"


def test_an_older_table_without_a_column_fails_even_without_rows(memory: Memory) -> None:
    connection = memory("create table conversations (id text, work_item_id text unique)")
    with pytest.raises(StepFailed) as caught:
        upgrade_connection(connection, now=NOW)
    assert caught.value.message == (
        "Step 30-backfill-projections failed: table conversations has no column named status."
    )


def test_columns_of_the_stores_own_are_left_alone(memory: Memory) -> None:
    connection = memory(
        "alter table work_items add column title text",
        "alter table events add column extra text",
        "create table notes (id text, work_item_id text references work_items(id))",
        "insert into work_items values ('w', '[{}]', 1, 2, 'a title')",
        "insert into notes values ('n', 'w')",
    )
    _upgraded(connection, to="35")
    assert connection.execute("select title from work_items").fetchone()[0] == "a title"
    assert [tuple(row) for row in connection.execute("select * from notes")] == [("n", "w")]
    assert len(_entries(connection)) == 1
