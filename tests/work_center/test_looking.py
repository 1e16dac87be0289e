"""Status and verification of a store."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.work_center.chain import STEPS, checksum
from pgflow_migrate.work_center.status import status
from pgflow_migrate.work_center.verify import CHECKS, verify

Make = Callable[..., Path]
OFF = "pragma foreign_keys = off"


def test_the_status_of_a_store_at_version_22(make: Make) -> None:
    found = status(make(example=True))
    assert (found.version, found.contract, found.journal_mode, found.problems) == (22, None, "delete", ())
    assert found.rows == {"work_items": 2, "actions": 2, "runs": 2, "events": 3, "pending_action_inputs": 1}
    assert {(step.state, step.applied_at, step.checksum) for step in found.steps} == {("missing", None, None)}
    assert found.pending == tuple(step.name for step in STEPS)


def test_the_status_of_an_upgraded_store(make_at: Make) -> None:
    path = make_at("35", "pragma journal_mode = wal", example=True)
    found = status(path)
    assert (found.version, found.contract, found.journal_mode, found.pending) == (35, True, "wal", ())
    assert {(step.state, step.applied_at, step.checksum) for step in found.steps} == {
        ("recorded", 1000, True)
    }
    assert found.rows["conversation_entries"] == 3
    assert (found.path, found.size) == (str(path), path.stat().st_size)


def test_the_status_tells_aliases_changes_gaps_and_newer_steps(make_at: Make) -> None:
    alias = "28-run-identity-v1"
    found = status(
        make_at(
            "30",
            f"insert into schema_migrations values ('23-conversation-stream-v1', 'x', 1), ('36-new', 'x', 1),"
            f" ('{alias}', '{checksum(alias)}', 5)",
            "update schema_migrations set checksum = 'x' where name = '24-action-stream'",
            "delete from schema_migrations where name in ('26-operation-identity', '28-run-identity')",
        )
    )
    assert [(step.state, step.applied_at, step.checksum) for step in found.steps[:7]] == [
        ("adopted", 1000, True),
        ("recorded", 1000, False),
        ("recorded", 1000, True),
        ("missing", None, None),
        ("recorded", 1000, True),
        ("under its earlier name", 5, True),
        ("recorded", 1000, True),
    ]
    assert (found.version, found.unknown) == (25, ("36-new",))
    assert [name[:2] for name in found.pending] == ["26", "28", "31", "32", "33", "34", "35"]


@pytest.mark.parametrize("step", ["22", *[str(step.number) for step in STEPS]])
def test_a_store_is_clean_after_every_step(make: Make, make_at: Make, step: str) -> None:
    found = verify(make(example=True) if step == "22" else make_at(step, example=True))
    assert (found.violations, found.version) == ((), int(step))


@pytest.mark.parametrize(
    ("check", "sql", "samples"),
    [
        ("ledger", "delete from schema_migrations where name like '24%'", ("24-action-stream",)),
        (
            "ledger",
            "update schema_migrations set checksum = 'x' where name like '24%'",
            ("24-action-stream",),
        ),
        ("structure", "drop index idx_operations_recovery", ("index idx_operations_recovery is missing",)),
        (
            "structure",
            "drop table coordinator_mailbox_entries; create table coordinator_mailbox_entries (id text)",
            (),
        ),
        (
            "structure",
            "drop trigger trg_runs_identity_immutable;\n"
            "create trigger trg_runs_identity_immutable before delete on runs begin select 1; end",
            (),
        ),
        ("contract", "drop trigger trg_engine_turn_request_immutable", ()),
        (
            "foreign-keys",
            "insert into conversations values ('c', 'gone', 'active', 1, 1)",
            ("row 3",),
        ),
        (
            "run-ordinals",
            "drop trigger trg_runs_identity_immutable; update runs set ordinal = null where id = 'r2'",
            ("r2",),
        ),
        (
            "terminal-identity",
            "drop trigger trg_runs_terminal_identity_immutable; update runs set terminal_at = null",
            ("r1",),
        ),
        ("conversations", "delete from conversations where work_item_id = 'w1'", ("w1",)),
        (
            "conversation-entries",
            "update conversation_entries set work_item_id = 'w2' where sequence = 1",
            (),
        ),
        ("inputs", "delete from action_entries where source_key = '22:events:2'", ("2",)),
        ("inputs", "delete from action_entries where source_key like '%inputs:1'", ("1",)),
        ("legacy-ids", "update action_entries set source_key = 'x' where source_key = '22:events:3'", ()),
        ("engine-turns", "update action_entries set engine_turn_id = 'gone' where run_id = 'r1'", ()),
    ],
)
def test_what_does_not_hold_is_found(make_at: Make, check: str, sql: str, samples: tuple[str, ...]) -> None:
    statements = [sql] if "begin select" in sql else sql.split("; ")
    found = verify(make_at("35", OFF, *statements, example=True))
    violations = [violation for violation in found.violations if violation.check == check]
    assert len(violations) == 1
    assert violations[0].count == max(len(samples), 1) or not samples
    if samples:
        assert violations[0].samples == samples
    assert set(CHECKS) >= {violation.check for violation in found.violations}


def test_what_came_after_the_upgrade_is_not_judged(make_at: Make) -> None:
    path = make_at(
        "35",
        "insert into work_items (id, created_at) values ('later', 2000)",
        "insert into runs (id, action_id, work_item_id, status, started_at)"
        " values ('r9', 'a2', 'w2', 'failed', 2000)",
        "insert into events (id, action_id, type, created_at) values (9, 'a1', 'action.input_added', 2000)",
        "alter table conversations add column title text",
        "create index of_our_own on conversations (title)",
        example=True,
    )
    assert verify(path).violations == ()


def test_before_step_32_an_older_engine_turns_is_no_violation(make: Make) -> None:
    path = make(
        "create table engine_turns (id text, status text, updated_at integer)",
        "create index idx_engine_turns_recovery on engine_turns(status, updated_at)",
    )
    connection = sqlite3.connect(path)
    connection.execute(
        "create table schema_migrations (name text primary key, checksum text, applied_at integer)"
    )
    connection.execute(
        "insert into schema_migrations values (?, ?, 1)", ("25-engine-turns", checksum("25-engine-turns"))
    )
    connection.commit()
    connection.close()
    assert [violation.check for violation in verify(path).violations] == ["ledger"]


def test_a_damaged_index_is_found(make_at: Make) -> None:
    path = make_at("35", example=True)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("pragma writable_schema = on")
    connection.execute(
        "update sqlite_master set sql = replace(sql, 'status, updated_at', 'updated_at, status')"
        " where name = 'idx_engine_turns_recovery'"
    )
    connection.close()
    found = {violation.check: violation for violation in verify(path).violations}
    assert [*found] == ["structure", "contract", "integrity"]
    assert found["integrity"].samples[0] == "row 1 missing from index idx_engine_turns_recovery"


def test_a_newer_store_is_not_verified(make_at: Make) -> None:
    with pytest.raises(PgflowMigrateError, match='it records the step "36-new"'):
        verify(make_at("35", "insert into schema_migrations values ('36-new', 'x', 1)"))
