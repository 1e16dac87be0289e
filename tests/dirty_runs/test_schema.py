"""The constraints of protocol 2: each refuses by itself what it is there for.

Every case is tried twice, and rolled back: once as it is, and once without its constraint, when it has to go
through. So no case passes because something else refuses it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.dirty_runs.changes import unchanged
from tests.dirty_runs.protocol import Session
from tests.dirty_runs.world import World, claim_on, goes_through_without, made, refusal

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server


@pytest.fixture(scope="module")
def world(server: Server, templates: Templates) -> Iterator[World]:
    """The world of this file."""
    with made(server, templates, "dirty_runs_schema") as world:
        yield world


WORK = "update pgflow.run_work set {} where run_id = '{{queued}}'"
WORK_ROW = (
    "insert into pgflow.run_work (run_id, flow_slug, definition_sha256) values ({}, 'demo', sha256(''))"
)
OPEN = "requested_generation = 1, requested_at = now(), "
ATTENTION = "state = 'attention', attention_at = now(), attention_reason = 'message_missing', "
ERROR = "last_error = {}, last_error_sqlstate = '{}', last_failed_at = now()"
RETRY = OPEN + "state = 'retry_wait', next_attempt_at = now(), "
HELD = "update pgflow.task_claims set {} where claim_id = '{{held_claim}}'"
SETTLED = "update pgflow.task_claims set {} where claim_id = '{{completed_claim}}'"
FAILED = "update pgflow.task_claims set {} where claim_id = '{{failed_claim}}'"
LONG = "to_jsonb(repeat('x', {}))"

CHECKS: dict[str, list[tuple[str, str]]] = {
    "step_tasks": [
        ("claimed_output_is_bounded",
            f"update pgflow.step_tasks set output = {LONG.format(65_535)} where run_id = '{{pending}}'"),
    ],
    "run_work": [
        ("run_work_pkey", WORK_ROW.format("'{queued}'")),
        ("protocol_version_is_known", WORK.format("protocol_version = 3")),
        ("protocol_version_is_known", WORK.format("protocol_version = 1")),
        ("protocol_version_is_known", WORK.format("protocol_version = 0")),
        ("definition_is_identified", WORK.format("definition_sha256 = decode(repeat('00', 31), 'hex')")),
        ("definition_is_identified", WORK.format("definition_sha256 = decode(repeat('00', 33), 'hex')")),
        ("state_is_valid", WORK.format(OPEN + "state = 'busy'")),
        ("generations_are_ordered", WORK.format("requested_generation = -1, processed_generation = -1")),
        ("generations_are_ordered",
            WORK.format(ATTENTION + "requested_at = now(), processed_generation = 1")),
        ("generations_are_ordered",
            WORK.format("requested_generation = 9007199254740992, processed_generation = 9007199254740992")),
        ("state_matches_generations", WORK.format(OPEN + "state = 'clean'")),
        ("state_matches_generations", WORK.format("state = 'pending'")),
        ("state_matches_generations",
            WORK.format("state = 'retry_wait', next_attempt_at = now(), failure_count = 1")),
        ("request_is_dated", WORK.format("requested_generation = 1, state = 'pending'")),
        ("retry_is_dated", WORK.format(OPEN + "state = 'retry_wait', failure_count = 1")),
        ("retry_is_dated", WORK.format(OPEN + "state = 'pending', next_attempt_at = now()")),
        ("failures_are_bounded", WORK.format("failure_count = -1")),
        ("failures_are_bounded", WORK.format(ATTENTION + "failure_count = 6")),
        ("failures_are_bounded", WORK.format(RETRY + "failure_count = 0")),
        ("failures_are_bounded", WORK.format(RETRY + "failure_count = 5")),
        ("failures_are_bounded", WORK.format(OPEN + "state = 'pending', failure_count = 5")),
        ("error_is_complete", WORK.format("last_error = 'x', last_error_sqlstate = 'XX000'")),
        ("error_is_complete", WORK.format("last_error = 'x', last_failed_at = now()")),
        ("error_is_complete", WORK.format("last_error_sqlstate = 'XX000', last_failed_at = now()")),
        ("error_is_bounded", WORK.format(ERROR.format("repeat('x', 4097)", "XX000"))),
        ("error_is_bounded", WORK.format(ERROR.format("repeat('é', 2049)", "XX000"))),
        ("error_is_bounded", WORK.format(ERROR.format("'x'", "XX00"))),
        ("attention_has_a_reason", WORK.format("state = 'attention', attention_at = now()")),
        ("attention_has_a_reason", WORK.format("state = 'attention', attention_reason = 'message_missing'")),
        ("attention_has_a_reason", WORK.format("attention_at = now(), attention_reason = 'message_missing'")),
        ("attention_reason_is_valid",
            WORK.format("state = 'attention', attention_at = now(), attention_reason = 'boredom'")),
    ],
    "task_claims": [
        ("task_claims_pkey", claim_on("queued", identity="'{held_claim}'")),
        ("task_claims_number_key", claim_on("takeover", state="'revoked'",
            columns=", revoked_at, revoked_reason", values=", now(), 'lease_lost'")),
        ("task_claims_active_key", claim_on("held", number=2, message="t.message_id + 1000")),
        ("task_claims_active_message_key",
            claim_on("queued",
                message="(select c.message_id from pgflow.task_claims c where c.claim_id = '{held_claim}')")),
        ("claim_number_is_bounded", HELD.format("claim_number = 0")),
        ("claim_number_is_bounded", HELD.format("claim_number = 3")),
        ("policy_is_supported", HELD.format("max_attempts = 2")),
        ("policy_is_supported", HELD.format("when_exhausted = 'skip'")),
        ("policy_is_supported", HELD.format("timeout_seconds = 0")),
        ("policy_is_supported", HELD.format("timeout_seconds = 3601")),
        ("lease_is_after_claim", HELD.format("lease_expires_at = claimed_at")),
        ("state_is_valid", HELD.format("state = 'lost'")),
        ("revocation_is_complete", HELD.format("state = 'revoked', revoked_at = now()")),
        ("revocation_is_complete", HELD.format("state = 'revoked', revoked_reason = 'lease_lost'")),
        ("revocation_is_complete", HELD.format("revoked_at = now(), revoked_reason = 'lease_lost'")),
        ("revoked_reason_is_valid",
            HELD.format("state = 'revoked', revoked_at = now(), revoked_reason = 'boredom'")),
        ("settlement_is_complete", SETTLED.format("settled_at = null")),
        ("settlement_is_complete", SETTLED.format("settlement_kind = null")),
        ("settlement_is_complete", SETTLED.format("disposition = null")),
        ("settlement_is_complete", SETTLED.format("settlement_sha256 = null")),
        ("settlement_is_complete", SETTLED.format("settlement_bytes = null")),
        ("settlement_is_complete", SETTLED.format("state = 'active'")),
        ("disposition_is_valid", SETTLED.format("settlement_kind = 'failed'")),
        ("disposition_is_valid", FAILED.format("settlement_kind = 'succeeded'")),
        ("disposition_is_valid", FAILED.format("settlement_kind = 'given up'")),
        ("error_matches_disposition", SETTLED.format("settlement_error = 'x'")),
        ("error_matches_disposition", FAILED.format("settlement_error = null")),
        ("oversize_is_told", SETTLED.format("settlement_bytes = 65537")),
        ("oversize_is_told", SETTLED.format("disposition = 'oversized', settlement_error = 'x'")),
        ("settlement_is_bounded", SETTLED.format("settlement_bytes = 0")),
        ("settlement_is_bounded", SETTLED.format("settlement_sha256 = decode(repeat('00', 31), 'hex')")),
        ("settlement_is_bounded", FAILED.format("settlement_error = repeat('x', 4097)")),
        ("settlement_is_bounded", FAILED.format("settlement_error = repeat('é', 2049)")),
    ],
}  # fmt: skip
# An address with its claim's own id is unique because the id is; the key is there for the foreign key to it.
IMPLIED = {"task_claims_address_key"}
UNIQUE = {"run_work_pkey", "task_claims_pkey", "task_claims_number_key"}
UNIQUE_INDEXES = {"task_claims_active_key", "task_claims_active_message_key"}

_CHECK_CASES = [(table, name, statement) for table, cases in CHECKS.items() for name, statement in cases]


@pytest.mark.parametrize(
    ("table", "name", "statement"), _CHECK_CASES, ids=[f"{case[0]}-{case[1]}" for case in _CHECK_CASES]
)
def test_a_constraint_refuses_what_it_alone_is_there_for(
    world: World, table: str, name: str, statement: str
) -> None:
    session = world.session
    said = world.said(statement)
    with unchanged(session):
        session.execute("set session_replication_role = replica")  # without the guards
        try:
            refused = refusal(session, said)
            assert refused.sqlstate == ("23505" if name in UNIQUE | UNIQUE_INDEXES else "23514")
            assert (refused.diag.table_name, refused.diag.constraint_name) == (table, name)
            goes_through_without(
                session,
                f"drop index pgflow.{name}"
                if name in UNIQUE_INDEXES
                else f"alter table pgflow.{table} drop constraint {name} cascade",
                said,
            )
        finally:
            session.execute("reset session_replication_role")


FOREIGN_KEYS = {
    "run_work_run_id_fkey": ("run_work", WORK_ROW.format("gen_random_uuid()")),
    "task_claims_run_id_step_slug_task_index_fkey": ("task_claims", claim_on("queued", step="'b'")),
    "step_tasks_current_claim_fkey": (
        "step_tasks",
        "update pgflow.step_tasks set current_claim_id = '{held_claim}' where run_id = '{takeover}'",
    ),
}


@pytest.mark.parametrize("name", FOREIGN_KEYS)
def test_a_foreign_key_refuses_what_is_not_there(world: World, name: str) -> None:
    table, statement = FOREIGN_KEYS[name]
    session = world.session
    said = world.said(statement)
    with unchanged(session):
        refused = refusal(session, said)
        assert (refused.sqlstate, refused.diag.constraint_name) == ("23503", name)
        goes_through_without(session, f"alter table pgflow.{table} drop constraint {name}", said)


def test_a_claims_task_cannot_be_deleted_nor_a_run_with_work(world: World) -> None:
    session = world.session
    with unchanged(session):
        refused = refusal(session, world.said("delete from pgflow.step_tasks where run_id = '{pending}'"))
        assert refused.diag.constraint_name == "task_claims_run_id_step_slug_task_index_fkey"
        refused = refusal(
            session,
            world.said(
                "alter table pgflow.step_states disable trigger all;"
                "delete from pgflow.step_tasks where run_id = '{queued}';"
                "delete from pgflow.step_states where run_id = '{queued}';"
                "delete from pgflow.runs where run_id = '{queued}'"
            ),
        )
        assert (refused.sqlstate, refused.diag.constraint_name) == ("23503", "run_work_run_id_fkey")


REQUIRED = {
    "run_work": [
        "created_at",
        "definition_sha256",
        "failure_count",
        "flow_slug",
        "processed_generation",
        "protocol_version",
        "requested_generation",
        "run_id",
        "state",
    ],
    "task_claims": [
        *("claim_id", "claim_number", "claimed_at", "lease_expires_at", "max_attempts", "message_id"),
        *("queue_name", "run_id", "state", "step_slug", "task_index", "timeout_seconds", "when_exhausted"),
        "worker_id",
    ],
}


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table in REQUIRED for column in REQUIRED[table]]
)
def test_a_required_column_is_never_null(world: World, table: str, column: str) -> None:
    session = world.session
    said = f"set session_replication_role = replica; update pgflow.{table} set {column} = null"
    with unchanged(session):
        refused = refusal(session, said)
        assert (refused.sqlstate, refused.diag.column_name) == ("23502", column)
        assert session.value("show session_replication_role") == "origin"


def test_no_constraint_is_untested(world: World) -> None:
    session = world.session
    found = {
        row["conname"]
        for row in session.rows(
            "select c.conname from pg_constraint c"
            " where c.conrelid in ('pgflow.run_work'::regclass, 'pgflow.task_claims'::regclass,"
            "   'pgflow.step_tasks'::regclass)"
            " and c.contype in ('c', 'u', 'p', 'f')"
            " and (c.conrelid in ('pgflow.run_work'::regclass, 'pgflow.task_claims'::regclass)"
            "   or pg_get_constraintdef(c.oid) ~ 'current_claim_id')"
        )
    }
    tested = {name for _, name, _ in _CHECK_CASES} | FOREIGN_KEYS.keys() | IMPLIED
    assert tested - UNIQUE_INDEXES == found
    indexes = session.rows(
        "select i.indexrelid::regclass::text as name from pg_index i"
        " where i.indisunique and i.indrelid in ('pgflow.run_work'::regclass, 'pgflow.task_claims'::regclass)"
        " and not exists ("
        "   select from pg_constraint c where c.conindid = i.indexrelid and c.contype in ('u', 'p')"
        " )"
    )
    assert {row["name"] for row in indexes} == {f"pgflow.{name}" for name in UNIQUE_INDEXES}
    required = session.rows(
        "select c.relname, array_agg(a.attname::text order by a.attname::text) as columns"
        " from pg_attribute a join pg_class c on c.oid = a.attrelid"
        " where a.attrelid in ('pgflow.run_work'::regclass, 'pgflow.task_claims'::regclass)"
        " and a.attnum > 0 and a.attnotnull group by 1"
    )
    assert {row["relname"]: row["columns"] for row in required} == REQUIRED


def test_runs_get_neither_columns_nor_constraints(world: World, database_at: Callable[[str], str]) -> None:
    columns = (
        "select attname, atttypid::regtype::text, attnotnull from pg_attribute"
        " where attrelid = 'pgflow.runs'::regclass and attnum > 0 order by attnum"
    )
    constraints = (
        "select conname, pg_get_constraintdef(oid) from pg_constraint"
        " where conrelid = 'pgflow.runs'::regclass order by conname"
    )
    before = Session(database_at("queue_identity"))
    try:
        for query in (columns, constraints):
            assert world.session.rows(query) == before.rows(query)
    finally:
        before.close()
