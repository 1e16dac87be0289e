"""Step 31 and 33's triggers: what can no longer be changed, and what still can."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import pytest

from pgflow_migrate.work_center.upgrade import upgrade_connection

Memory = Callable[..., sqlite3.Connection]
TERMINAL = "terminal Run result is immutable"
IDENTITY = "Run identity is immutable"


@pytest.fixture
def upgraded(memory_at: Callable[..., sqlite3.Connection]) -> sqlite3.Connection:
    """The example at step 35: run r1 is completed, run r2 is running, one turn is imported."""
    connection = memory_at("35", example=True)
    connection.execute(
        "insert into coordinator_provider_turns (id, work_item_id, coordinator_turn_id, attempt_number,"
        " status, request_body, request_hash, prepared_at, updated_at)"
        " values ('p', 'w1', 'c', 1, 'prepared', '{}', 'h', 1, 1)"
    )
    return connection


@pytest.mark.parametrize(
    "change",
    [
        "action_id = 'a2'",
        "work_item_id = 'w2'",
        "owner_boot_id = 'x'",
        "lease_epoch = 9",
        "ordinal = 9",
        "started_at = 9",
        "ordinal = null",
    ],
)
@pytest.mark.parametrize(("run", "message"), [("r1", TERMINAL), ("r2", IDENTITY)])
def test_which_run_it_is_never_changes(
    upgraded: sqlite3.Connection, run: str, message: str, change: str
) -> None:
    before = upgraded.execute("select * from runs").fetchall()
    with pytest.raises(sqlite3.IntegrityError) as caught:
        upgraded.execute(f"update runs set {change} where id = '{run}'")
    # Both guards are on an ended run; which of them SQLite asks first is its own matter.
    assert str(caught.value) in (message, IDENTITY)
    assert upgraded.execute("select * from runs").fetchall() == before


@pytest.mark.parametrize(
    "column",
    [
        "status",
        "ended_at",
        "terminal_status",
        "terminal_at",
        "response",
        "summary",
        "evidence",
        "waiting_reason",
        "error",
        "failure_kind",
        "failure_code",
        "review_decision",
        "contract_patch",
        "checkpoint",
    ],
)
def test_the_result_of_an_ended_run_stays(upgraded: sqlite3.Connection, column: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match=TERMINAL):
        upgraded.execute(f"update runs set {column} = 'changed' where id = 'r1'")
    upgraded.execute(f"update runs set {column} = {column} where id = 'r1'")


def test_a_run_that_ends_captures_its_terminal_identity_once(upgraded: sqlite3.Connection) -> None:
    upgraded.execute("update runs set summary = 'so far' where id = 'r2'")
    upgraded.execute("update runs set status = 'failed', ended_at = 77, error = 'e' where id = 'r2'")
    found = upgraded.execute(
        "select status, terminal_status, terminal_at from runs where id = 'r2'"
    ).fetchone()
    assert found == ("failed", "failed", 77)
    with pytest.raises(sqlite3.IntegrityError, match=TERMINAL):
        upgraded.execute("update runs set status = 'running' where id = 'r2'")


def test_a_run_without_an_end_is_captured_with_its_start(upgraded: sqlite3.Connection) -> None:
    upgraded.execute("update runs set status = 'cancelled' where id = 'r2'")
    assert upgraded.execute("select terminal_at from runs where id = 'r2'").fetchone() == (2,)


@pytest.mark.parametrize(
    "change",
    [
        "run_id = 'r2'",
        "ordinal = 2",
        "request_body = 'x'",
        "request_hash = 'x'",
        "input_entry_ids = 'x'",
        "message_entry_ids = 'x'",
        "control_entry_ids = 'x'",
    ],
)
def test_a_request_to_the_engine_stays(upgraded: sqlite3.Connection, change: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="prepared EngineTurn request is immutable"):
        upgraded.execute(f"update engine_turns set {change}")
    upgraded.execute("update engine_turns set status = 'responded', response = 'r', updated_at = 5")


@pytest.mark.parametrize(
    "change",
    [
        "work_item_id = 'w2'",
        "coordinator_turn_id = 'x'",
        "attempt_number = 2",
        "request_body = 'x'",
        "request_hash = 'x'",
    ],
)
def test_a_request_to_the_provider_stays(upgraded: sqlite3.Connection, change: str) -> None:
    with pytest.raises(sqlite3.IntegrityError, match="prepared Coordinator provider request is immutable"):
        upgraded.execute(f"update coordinator_provider_turns set {change}")
    upgraded.execute(
        "update coordinator_provider_turns set claim_owner = 'o', claim_epoch = 1, status = 'unknown'"
    )


def test_older_forms_of_two_triggers_are_replaced_and_of_the_others_kept(memory: Memory) -> None:
    names = (
        "trg_runs_capture_terminal_identity",
        "trg_runs_terminal_identity_immutable",
        "trg_runs_identity_immutable",
    )
    older = [f"create trigger {name} before delete on runs begin select 1; end" for name in names]
    connection = memory(*older)
    upgrade_connection(connection, now=1, to="31")
    texts = dict(connection.execute("select name, sql from sqlite_master where type = 'trigger'").fetchall())
    assert {name: "before delete" in texts[name] for name in names} == {
        names[0]: False,
        names[1]: False,
        names[2]: True,
    }
