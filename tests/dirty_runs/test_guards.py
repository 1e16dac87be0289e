"""The guards of protocol 2: what no constraint can say, refused whoever writes."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from tests.dirty_runs.changes import unchanged
from tests.dirty_runs.protocol import Session
from tests.dirty_runs.world import World, assert_refused, claim_on, goes_through_without, made, refusal

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server


@pytest.fixture(scope="module")
def world(server: Server, templates: Templates) -> Iterator[World]:
    """The world of this file."""
    with made(server, templates, "dirty_runs_guards") as world:
        yield world


RUN_IS_FINAL = "run {{{}}} of protocol {}: identity, input and a final status are never changed"
RUN = "update pgflow.runs set {} where run_id = '{{{}}}'"
WORK = "update pgflow.run_work set {} where run_id = '{{queued}}'"
PENDING = "state = 'pending', requested_at = now(), "
HELD = "update pgflow.task_claims set {} where claim_id = '{{held_claim}}'"
SETTLED = "update pgflow.task_claims set {} where claim_id = '{{completed_claim}}'"
FAILED = "update pgflow.task_claims set {} where claim_id = '{{failed_claim}}'"
LONG = "to_jsonb(repeat('x', {}))"
WORK_ROW = "work row of run {{queued}}: {}"
TASK = "update pgflow.step_tasks set {} where run_id = '{{queued}}'"
TASK_IS_FINAL = "task ({queued}, a, 0): queue, message and address are never changed"
NOT_TRUNCATED = "pgflow.{} is evidence and is not truncated"


def claim_fault(run: str, fault: str) -> str:
    """What a guard says of a claim with a new id."""
    return f"claim % on task ({{{run}}}, a, 0): {fault}"


GUARDS: list[tuple[str, str, str, str, str]] = [
    # runs
    ("runs", "protocol_2_identity", RUN.format("protocol_version = 2, definition_sha256 = sha256('')", "v1"),
        "PF006", RUN_IS_FINAL.format("v1", 1)),
    ("runs", "protocol_2_identity", RUN.format("protocol_version = 1, definition_sha256 = null", "queued"),
        "PF006", RUN_IS_FINAL.format("queued", 2)),
    ("runs", "protocol_2_identity", RUN.format("definition_sha256 = sha256('')", "queued"),
        "PF006", RUN_IS_FINAL.format("queued", 2)),
    ("runs", "protocol_2_identity", RUN.format("flow_slug = 'other'", "queued"),
        "PF006", RUN_IS_FINAL.format("queued", 2)),
    ("runs", "protocol_2_identity", RUN.format("input = '1'", "queued"),
        "PF006", RUN_IS_FINAL.format("queued", 2)),
    ("runs", "protocol_2_identity", RUN.format("status = 'started', completed_at = null", "completed"),
        "PF006", RUN_IS_FINAL.format("completed", 2)),
    ("runs", "protocol_2_identity",
        RUN.format("status = 'failed', completed_at = null, failed_at = clock_timestamp()", "completed"),
        "PF006", RUN_IS_FINAL.format("completed", 2)),
    ("runs", "protocol_2_identity",
        RUN.format("status = 'completed', failed_at = null, remaining_steps = 0", "failed"),
        "PF006", RUN_IS_FINAL.format("failed", 2)),
    ("runs", "protocol_2_has_work",
        "insert into pgflow.runs (flow_slug, input, remaining_steps, protocol_version, definition_sha256)"
        " values ('demo', '1', 2, 2, sha256(''))",
        "PF006", "run % of protocol 2 has no work row"),
    # run_work
    ("run_work", "work_is_stable", "insert into pgflow.run_work (run_id) values ('{v1}')",
        "PF005", "run {v1} is not of protocol 2"),
    ("run_work", "work_is_stable", WORK.format("created_at = created_at - interval '1 s'"),
        "PF006", WORK_ROW.format("its identity never changes")),
    ("run_work", "work_is_stable", WORK.format(PENDING + "requested_generation = 2"),
        "PF006", WORK_ROW.format("requests are raised one by one")),
    ("run_work", "work_is_stable",
        "update pgflow.run_work set requested_generation = 1, processed_generation = 1"
        " where run_id = '{completed}'",
        "PF006", "work row of run {completed}: requests are raised one by one"),
    ("run_work", "work_is_stable",
        "update pgflow.run_work set state = 'pending', requested_at = now(), processed_generation = 1"
        " where run_id = '{completed}'",
        "PF006", "work row of run {completed}: what is processed stays processed"),
    ("run_work", "work_is_not_truncated", "truncate pgflow.run_work",
        "PF006", NOT_TRUNCATED.format("run_work")),
    # task_claims
    ("task_claims", "claim_is_evidence", claim_on("v1"),
        "PF006", claim_fault("v1", "its run is not a started one of protocol 2")),
    ("task_claims", "claim_is_evidence", claim_on("completed", number=2),
        "PF006", claim_fault("completed", "its run is not a started one of protocol 2")),
    ("task_claims", "claim_is_evidence", claim_on("pending", number=2),
        "PF006", claim_fault("pending", "its run's work is not clean")),
    ("task_claims", "claim_is_evidence",
        "update pgflow.task_claims set state = 'revoked', revoked_at = now(), revoked_reason = 'lease_lost'"
        " where claim_id = '{held_claim}';" + claim_on("held", number=2),
        "PF006", claim_fault("held", "its task is not queued")),
    ("task_claims", "claim_is_evidence", claim_on("queued", message="t.message_id + 1000"),
        "PF006", claim_fault("queued", "its message is not its task's")),
    ("task_claims", "claim_is_evidence", claim_on("queued", queue="'other'"),
        "PF006", claim_fault("queued", "its message is not its task's")),
    ("task_claims", "claim_is_evidence", claim_on("queued", state="'revoked'",
        columns=", revoked_at, revoked_reason", values=", now(), 'lease_lost'"),
        "PF006", claim_fault("queued", "it does not begin as active")),
    ("task_claims", "claim_is_evidence", claim_on("queued", number=2),
        "PF006", claim_fault("queued", "its number is not the next")),
    ("task_claims", "claim_is_evidence",
        "update pgflow.task_claims set revoked_reason = 'run_failed' where claim_id = '{revoked_claim}'",
        "PF006", "claim {revoked_claim} on task ({takeover}, a, 0): it is revoked already"),
    ("task_claims", "claim_is_evidence", SETTLED.format("settlement_sha256 = sha256('')"),
        "PF006", "claim {completed_claim} on task ({completed}, a, 0): it is settled already"),
    ("task_claims", "claim_is_evidence", FAILED.format("settlement_error = 'better'"),
        "PF006", "claim {failed_claim} on task ({failed}, a, 0): it is settled already"),
    ("task_claims", "claim_is_evidence", "delete from pgflow.task_claims where claim_id = '{revoked_claim}'",
        "55000", "claim {revoked_claim} is kept: run {takeover}: it is live"),
    ("task_claims", "claims_are_not_truncated",
        "alter table pgflow.step_tasks drop constraint step_tasks_current_claim_fkey;"
        "truncate pgflow.task_claims",
        "PF006", NOT_TRUNCATED.format("task_claims")),
    # step_tasks
    ("step_tasks", "protocol_2_address", TASK.format("queue_name = 'other'"), "PF006", TASK_IS_FINAL),
    ("step_tasks", "protocol_2_address", TASK.format("message_id = message_id + 99"), "PF006", TASK_IS_FINAL),
    ("step_tasks", "protocol_2_address", TASK.format("message_id = null"), "PF006", TASK_IS_FINAL),
    ("step_tasks", "protocol_2_address", TASK.format("task_index = 1"), "PF006", TASK_IS_FINAL),
    ("step_tasks", "protocol_2_address", TASK.format("step_slug = 'b'"), "PF006", TASK_IS_FINAL),
    ("step_tasks", "protocol_2_address", TASK.format("flow_slug = 'other'"), "PF006", TASK_IS_FINAL),
    ("step_tasks", "protocol_2_address",
        "update pgflow.step_tasks set run_id = '{v1}', step_slug = 'b' where run_id = '{queued}'",
        "PF006", TASK_IS_FINAL),
]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "guard", "statement", "sqlstate", "message"),
    GUARDS,
    ids=[f"{case[0]}-{case[4].rpartition(': ')[2]}" for case in GUARDS],
)
def test_a_guard_refuses_what_nothing_else_would(
    world: World, table: str, guard: str, statement: str, sqlstate: str, message: str
) -> None:
    session = world.session
    said = world.said(statement)
    with unchanged(session):
        assert_refused(session, said, sqlstate, world.said(message))
        goes_through_without(session, f"alter table pgflow.{table} disable trigger {guard}", said)


CLAIM_IDENTITY = {
    "claim_number": "2",
    "queue_name": "'other'",
    "message_id": "message_id + 99",
    "worker_id": "gen_random_uuid()",
    "timeout_seconds": "61",
    "claimed_at": "claimed_at - interval '1 s'",
    "lease_expires_at": "lease_expires_at + interval '1 s'",
}
# What another constraint refuses as well.
KEYED_IDENTITY = {
    "claim_id": ("gen_random_uuid()", "step_tasks_current_claim_fkey"),
    "run_id": ("'{queued}'", "step_tasks_current_claim_fkey"),
    "step_slug": ("'b'", "step_tasks_current_claim_fkey"),
    "task_index": ("1", "step_tasks_current_claim_fkey"),
    "max_attempts": ("2", "policy_is_supported"),
    "when_exhausted": ("'skip'", "policy_is_supported"),
}
GUARD_OFF = "alter table pgflow.task_claims disable trigger claim_is_evidence"


@pytest.mark.parametrize("column", [*CLAIM_IDENTITY, *KEYED_IDENTITY])
def test_the_identity_of_a_claim_is_final_while_it_is_active(world: World, column: str) -> None:
    session = world.session
    value, constraint = KEYED_IDENTITY.get(column) or (CLAIM_IDENTITY[column], None)
    said = world.said(HELD.format(f"{column} = {value}"))
    with unchanged(session):
        assert_refused(session, said, "PF006", "claim % on task %: its identity never changes")
        if constraint is None:
            goes_through_without(session, GUARD_OFF, said)
        else:
            assert refusal(session, f"{GUARD_OFF}; {said}").diag.constraint_name == constraint


def test_no_column_of_a_claims_identity_is_untested(world: World) -> None:
    ends = {"state", "revoked_at", "revoked_reason", "settled_at", "settlement_kind", "disposition"}
    ends |= {"settlement_sha256", "settlement_bytes", "settlement_error"}
    columns = world.session.rows(
        "select attname from pg_attribute"
        " where attrelid = 'pgflow.task_claims'::regclass and attnum > 0 and not attisdropped"
    )
    assert {row["attname"] for row in columns} == CLAIM_IDENTITY.keys() | KEYED_IDENTITY.keys() | ends


def test_truncating_what_is_referred_to_truncates_no_evidence(world: World) -> None:
    session = world.session
    with unchanged(session):
        for table in ("runs", "step_tasks", "step_states", "flows"):
            refused = refusal(session, f"truncate pgflow.{table} cascade")
            assert refused.sqlstate == "PF006", refused


def test_tables_without_evidence_are_truncated_as_ever(session: Session) -> None:
    session.define()
    session.execute("select pgflow.start_flow('demo', '{}')")
    session.execute("truncate pgflow.runs cascade")
    assert session.value("select count(*) from pgflow.step_tasks") == 0


def test_a_run_without_work_is_refused_at_its_commit(world: World, open_world: Session) -> None:
    with unchanged(world.session):
        open_world.execute("begin")
        open_world.execute(
            "insert into pgflow.runs (flow_slug, input, remaining_steps, protocol_version, definition_sha256)"
            " values ('demo', '1', 2, 2, sha256(''))"
        )
        with pytest.raises(psycopg.Error) as refused:
            open_world.execute("commit")
        assert refused.value.sqlstate == "PF006"
    # With its work row, made later in the same transaction, it is a run.
    open_world.execute("begin")
    run = open_world.value(
        "insert into pgflow.runs (flow_slug, input, remaining_steps, protocol_version, definition_sha256)"
        " values ('demo', '1', 2, 2, sha256('')) returning run_id"
    )
    open_world.execute("insert into pgflow.run_work (run_id) values (%s)", run)
    open_world.execute("set constraints all immediate")
    open_world.execute("rollback")


@pytest.fixture
def open_world(world: World) -> Iterator[Session]:
    """A second session on the same database."""
    session = Session(world.session.dsn)
    yield session
    session.close()


def test_attention_is_cleared_by_no_update(world: World) -> None:
    session = world.session
    said = world.said(
        "update pgflow.run_work set state = 'attention', attention_at = now(),"
        " attention_reason = 'message_missing' where run_id = '{queued}';"
        "update pgflow.run_work set state = 'clean', attention_at = null, attention_reason = null"
        " where run_id = '{queued}'"
    )
    with unchanged(session):
        assert_refused(
            session,
            said,
            "PF006",
            world.said("work row of run {queued}: attention is never cleared by itself"),
        )


def test_generations_end_at_their_maximum_and_never_wrap(world: World) -> None:
    session = world.session
    run = world.run("queued")
    with unchanged(session), session.connection.transaction(force_rollback=True):
        session.execute("set local session_replication_role = replica")
        session.execute(
            "update pgflow.run_work set requested_generation = 9007199254740990,"
            " processed_generation = 9007199254740990 where run_id = %s",
            run,
        )
        session.execute("set local session_replication_role = origin")
        asked = session.value("select pgflow.request_reconciliation_v2(%s)", run)
        assert asked["requested_generation"] == 9007199254740991
        with pytest.raises(psycopg.errors.CheckViolation) as refused, session.connection.transaction():
            session.execute("select pgflow.request_reconciliation_v2(%s)", run)
        assert refused.value.diag.constraint_name == "generations_are_ordered"
        assert session.reconcile(run)["outcome"] == "clean"
        assert session.work(run)["processed_generation"] == 9007199254740991


def test_no_guard_is_untested(world: World) -> None:
    found = world.session.rows(
        "select t.tgrelid::regclass::text as relation, t.tgname, t.tgenabled from pg_trigger t"
        " where not t.tgisinternal and t.tgfoid::regproc::text like 'pgflow.%%' order by 1, 2"
    )
    tested = {(f"pgflow.{table}", guard) for table, guard, *_ in GUARDS}
    tested |= {(f"pgflow.{table}", "protocol_2_freeze") for table in ("flows", "steps", "deps")}
    tested |= {("pgflow.run_work", "run_keeps_its_work")}  # Both in test_freeze.py.
    assert {(row["relation"], row["tgname"]) for row in found} == tested
    assert {row["tgenabled"] for row in found} == {"O"}


def test_what_protocol_1_does_with_its_rows_stays_allowed(world: World) -> None:
    session = world.session
    with session.connection.transaction(force_rollback=True):
        for statement in (
            f"update pgflow.runs set input = {LONG.format(200_000)} where run_id = '{{v1}}'",
            "update pgflow.runs set status = 'failed', failed_at = clock_timestamp() where run_id = '{v1}'",
            "update pgflow.runs set status = 'started', failed_at = null where run_id = '{v1}'",
            f"update pgflow.step_tasks set status = 'completed', completed_at = clock_timestamp(),"
            f" output = {LONG.format(200_000)} where run_id = '{{v1}}'",
            "update pgflow.step_tasks set message_id = message_id + 1000 where run_id = '{v1}'",
            "update pgflow.step_tasks set queue_name = 'other' where run_id = '{v1}'",
            "delete from pgflow.step_tasks where run_id = '{v1}'",
        ):
            session.execute(world.said(statement))
