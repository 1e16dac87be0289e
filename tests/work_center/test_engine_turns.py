"""Steps 32 and 34: the status contract, by values worked out by hand."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable

import pytest
from tests.work_center.stores import recorded, rows, run, schema

from pgflow_migrate.errors import EXIT_BLOCKED
from pgflow_migrate.work_center import engine_turns
from pgflow_migrate.work_center.errors import StepFailed, StepRefused
from pgflow_migrate.work_center.upgrade import upgrade_connection

Memory = Callable[..., sqlite3.Connection]
UNKNOWN = "Legacy provider dispatch outcome is unknown after schema upgrade"
CONTRACT = "'prepared', 'dispatching', 'responded', 'unknown', 'cancelled', 'legacy_imported'"


@pytest.fixture
def older(memory_at: Callable[..., sqlite3.Connection]) -> sqlite3.Connection:
    """A store after step 31 with an older engine_turns: a turn of each status, two of them dispatching."""
    connection = memory_at("31", example=True)
    connection.execute("pragma foreign_keys = off")
    run(connection, recorded("older.sql"))
    connection.execute(
        "insert into engine_turns (id, work_item_id, action_id, run_id, ordinal, status, owner_boot_id,"
        " lease_epoch, request_key, created_at, updated_at, input_entry_ids)"
        " values ('t91', 'w1', 'a1', 'r2', 2, 'dispatching', 'b', 4, 'k91', 1, 2, '[]')"
    )
    connection.execute("pragma foreign_keys = on")
    return connection


def _with_table(memory: Memory, sql: str) -> sqlite3.Connection:
    return memory(f"create table engine_turns ({sql})")


def test_statuses_are_mapped_and_unknown_outcomes_say_why(older: sqlite3.Connection) -> None:
    upgrade_connection(older, now=7000)
    found = older.execute("select id, status, error, updated_at from engine_turns order by id").fetchall()
    assert found == [
        ("t1", "prepared", None, 2),
        ("t2", "unknown", UNKNOWN, 7000),
        ("t3", "unknown", "an error of its own", 2),
        ("t4", "responded", None, 2),
        ("t5", "unknown", UNKNOWN, 2),
        ("t6", "responded", "kept", 2),
        ("t7", "cancelled", None, 2),
        ("t8", "legacy_imported", None, 2),
        ("t9", "unknown", None, 2),
        ("t91", "unknown", UNKNOWN, 2),
    ]


def test_a_rebuild_keeps_values_and_gives_defaults(older: sqlite3.Connection) -> None:
    upgrade_connection(older, now=7000)
    older.row_factory = sqlite3.Row
    turns = {row["id"]: dict(row) for row in older.execute("select * from engine_turns")}
    defaults = {name: turns["t1"][name] for name in turns["t1"] if name.endswith(("_ids", "_sequence"))}
    assert defaults == {
        "input_entry_ids": '["e"]',
        "message_entry_ids": '["e"]',  # those of the input, where there were none
        "control_entry_ids": "[]",
        "claimed_through_sequence": 0,
        "consumed_through_sequence": 0,
    }
    assert turns["t2"]["message_entry_ids"] == '["m"]'
    assert [turns["t1"][name] for name in ("request_body", "request_hash", "dispatch_attempt")] == [
        "{}",
        "",
        0,
    ]
    assert turns["t1"]["dispatch_capability"] == "unknown"
    kept = ("request_body", "request_hash", "dispatch_attempt", "dispatch_capability", "response")
    assert [turns["t6"][name] for name in kept] == ['{"q":1}', "rh", 6, "idempotent", "r"]
    times = ("claimed_at", "dispatched_at", "responded_at", "consumed_at")
    assert [turns["t6"][name] for name in times] == [7, 8, 9, 10]
    assert "a_column_of_its_own" not in turns["t1"]


def test_a_rebuild_keeps_who_refers_to_a_turn(older: sqlite3.Connection) -> None:
    upgrade_connection(older, now=7000)
    entries = older.execute("select id, engine_turn_id from action_entries where id like 'e%' order by id")
    assert entries.fetchall() == [("e1", "t2"), ("e2", None), ("e3", "a turn that is gone")]
    operations = older.execute("select id, engine_turn_id from operations order by id").fetchall()
    assert operations == [("o1", "t3"), ("o2", None)]
    older.execute("delete from engine_turns where id = 't3'")
    assert older.execute("select id from operations").fetchall() == [("o2",)]
    assert older.execute("select name from temp.sqlite_master").fetchall() == []


def test_a_table_with_the_contract_is_left_as_it_is(memory: Memory) -> None:
    connection = memory(example=True)
    upgrade_connection(connection, now=1000, to="31")
    before = [row for row in schema(connection) if row[2] == "engine_turns"]
    upgrade_connection(connection, now=1000)
    assert [row for row in schema(connection) if row[2] == "engine_turns"] == before


@pytest.mark.parametrize(
    ("column", "has"),
    [
        (f"status TEXT NOT NULL CHECK(status IN ({CONTRACT}))", True),
        (f"status\ttext  NOT\nnull check ( STATUS in( {CONTRACT.replace(', ', ' ,')} ) )", True),
        (f"old_status TEXT NOT NULL CHECK(status IN ({CONTRACT})), status", True),
        (f"status INTEGER, note /* status text not null\u00a0check(status in({CONTRACT})) */", True),
        (f"status TEXT CHECK(status IN ({CONTRACT}))", False),
        (f'"status" TEXT NOT NULL CHECK("status" IN ({CONTRACT}))', False),
        (f"status TEXT NOT NULL CHECK(status IN ({CONTRACT}, 'odd'))", False),
        ("status TEXT NOT NULL CHECK(status IN ('dispatching', 'prepared'))", False),
        (f"\u017ftatus TEXT NOT NULL CHECK(\u017ftatus IN ({CONTRACT})), status", False),
    ],
)
def test_the_contract_is_read_off_the_tables_text(memory: Memory, column: str, has: bool) -> None:
    assert engine_turns.has_contract(_with_table(memory, column)) == has


def test_without_the_table_there_is_no_contract(memory: Memory) -> None:
    assert not engine_turns.has_contract(memory())


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (
            "drop index idx_engine_turns_recovery",
            "engine_turns does not have its index on status, updated_at",
        ),
        (
            "drop trigger trg_engine_turn_request_immutable",
            "engine_turns does not have its trigger trg_engine_turn_request_immutable",
        ),
    ],
)
def test_the_repair_refuses_what_was_lost_and_leaves_the_store(
    memory_at: Callable[..., sqlite3.Connection], spoil: str, reason: str
) -> None:
    connection = memory_at("33", example=True)
    connection.execute(spoil)
    before = schema(connection), rows(connection)
    with pytest.raises(StepRefused) as caught:
        upgrade_connection(connection, now=7000)
    assert caught.value.message == f"Step 34-engine-turn-status-repair cannot be done: {reason}."
    assert caught.value.exit_code == EXIT_BLOCKED
    assert caught.value.details == ("Nothing was changed.",)
    assert (schema(connection), rows(connection)) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("REFERENCES runs(id) ON DELETE CASCADE", ""),
        ("UNIQUE(run_id, ordinal)", "UNIQUE(ordinal, run_id)"),
        ("request_key TEXT NOT NULL UNIQUE", "request_key TEXT NOT NULL"),
    ],
)
def test_the_repair_refuses_a_contract_without_its_keys(
    memory_at: Callable[..., sqlite3.Connection], old: str, new: str
) -> None:
    connection = memory_at("33")
    table = next(row[3] for row in schema(connection) if row[1] == "engine_turns")
    others = [
        row[3] for row in schema(connection) if row[2] == "engine_turns" and row[0] != "table" and row[3]
    ]
    assert old in table
    run(connection, "drop table engine_turns", table.replace(old, new), *others)
    with pytest.raises(StepRefused, match="engine_turns does not have its"):
        upgrade_connection(connection, now=7000)


def test_a_rebuild_refuses_references_that_lead_nowhere_and_leaves_the_store(
    older: sqlite3.Connection,
) -> None:
    older.execute("pragma foreign_keys = off")
    older.execute("update operations set work_item_id = 'gone' where id = 'o2'")
    older.execute("pragma foreign_keys = on")
    before = schema(older), rows(older)
    with pytest.raises(StepRefused) as caught:
        upgrade_connection(older, now=7000)
    assert caught.value.reason == "row 2 of operations refers to no row of work_items"
    assert (schema(older), rows(older)) == before


def test_a_rebuild_fails_on_a_column_that_it_needs_and_leaves_the_store(older: sqlite3.Connection) -> None:
    older.execute("alter table engine_turns drop column response")
    before = schema(older), rows(older)
    with pytest.raises(StepFailed) as caught:
        upgrade_connection(older, now=7000)
    assert caught.value.message == "Step 32-engine-turn-status-contract failed: no such column: response."
    assert (schema(older), rows(older)) == before


def test_the_repair_rebuilds_what_lost_the_contract_after_step_32(older: sqlite3.Connection) -> None:
    older.execute(
        "insert into schema_migrations select '32-engine-turn-status-contract', ?, 1000",
        ("80515f21625f0daf19e72042f19c6e3bc89c406e133cf9bfb99e1a5f022231ad",),
    )
    result = upgrade_connection(older, now=7000)
    assert [done.step[:2] for done in result.steps] == ["33", "34", "35"]
    wanted = json.loads(recorded("older.json"))["rows"]["engine_turns"]
    assert [row[0] for row in rows(older)["engine_turns"]] == [*(row[0] for row in wanted), "str:t91"]
    assert engine_turns.has_contract(older)
