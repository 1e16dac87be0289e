"""The guards of protocol 2: what no constraint can say, refused whoever writes."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest
from tests.dirty_runs.changes import unchanged
from tests.dirty_runs.protocol import Session
from tests.dirty_runs.world import World, assert_refused, claim_on, goes_through_without, made, refusal

from pgflow_migrate.dirty_runs.limits import limit
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server


@pytest.fixture(scope="module")
def world(server: Server, templates: Templates) -> Iterator[World]:
    """The world of this file."""
    with made(server, templates, "dirty_runs_guards") as world:
        number = str(world.session.started(given="1"))
        yield World(world.session, {**world.ids, "number": number})


RUN_IS_FINAL = "run {{{}}} of protocol 2: address, input and a final status are never changed"
RUN = "update pgflow.runs set {} where run_id = '{{{}}}'"
WORK = "update pgflow.run_work set {} where run_id = '{{queued}}'"
PENDING = "state = 'pending', requested_at = now(), "
HELD = "update pgflow.task_claims set {} where claim_id = '{{held_claim}}'"
SETTLED = "update pgflow.task_claims set {} where claim_id = '{{completed_claim}}'"
FAILED = "update pgflow.task_claims set {} where claim_id = '{{failed_claim}}'"
LONG = "to_jsonb(repeat('x', {}))"
WORK_OF = "insert into pgflow.run_work (run_id, flow_slug, definition_sha256) values ('{}', '{}', sha256(''))"
WORK_ROW = "work row of run {{queued}}: {}"
TASK = "update pgflow.step_tasks set {} where run_id = '{{queued}}'"
TASK_IS_FINAL = "task ({queued}, a, 0): queue, message and address are never changed"
NOT_TRUNCATED = "pgflow.{} is evidence and is not truncated"
NEW = "00000000-0000-4000-8000-0000000000ff"
NO_PROTOCOL_2 = f"run {NEW} cannot speak protocol 2: {{}}"
# Of a JSON string, which has two quotes more.
INPUT_LETTERS = limit("input_bytes") - 2
OUTPUT_LETTERS = limit("run_output_bytes") - 2


def by_hand(**columns: str) -> str:
    """Make a run of demo and its work row by hand; columns of the run are SQL."""
    given = {"flow_slug": "'demo'", "input": "'1'", "remaining_steps": "2", **columns}
    return (
        f"insert into pgflow.runs (run_id, {', '.join(given)}) values ('{NEW}', {', '.join(given.values())});"
        + WORK_OF.format(NEW, "demo")
    )


def claim_fault(run: str, fault: str) -> str:
    """What a guard says of a claim with a new id."""
    return f"claim % on task ({{{run}}}, a, 0): {fault}"


GUARDS: list[tuple[str, str, str, str, str]] = [
    # runs
    ("runs", "protocol_2_identity", RUN.format("flow_slug = 'other'", "queued"),
        "PF006", RUN_IS_FINAL.format("queued")),
    ("runs", "protocol_2_identity", RUN.format("input = '1'", "queued"),
        "PF006", RUN_IS_FINAL.format("queued")),
    ("runs", "protocol_2_identity", RUN.format("input = '1.0'", "number"),
        "PF006", RUN_IS_FINAL.format("number")),
    ("runs", "protocol_2_end", RUN.format("status = 'started', completed_at = null", "completed"),
        "PF006", RUN_IS_FINAL.format("completed")),
    ("runs", "protocol_2_end",
        RUN.format("status = 'failed', completed_at = null, failed_at = clock_timestamp()", "completed"),
        "PF006", RUN_IS_FINAL.format("completed")),
    ("runs", "protocol_2_end",
        RUN.format("status = 'completed', failed_at = null, remaining_steps = 0", "failed"),
        "PF006", RUN_IS_FINAL.format("failed")),
    ("runs", "protocol_2_end", RUN.format(f"output = {LONG.format(OUTPUT_LETTERS + 1)}", "completed"),
        "PF006", "run {completed} of protocol 2: its output is bounded"),
    # run_work
    ("run_work", "work_is_of_a_new_run", WORK_OF.format("{v1}", "demo"),
        "PF006", "run {v1} cannot speak protocol 2: it has begun with protocol 1"),
    ("run_work", "work_is_of_a_new_run", by_hand(status="'failed'", failed_at="clock_timestamp()"),
        "PF006", NO_PROTOCOL_2.format("it has begun with protocol 1")),
    ("run_work", "work_is_of_a_new_run", by_hand(flow_slug="'other'"),
        "PF006", NO_PROTOCOL_2.format("its flow is another")),
    ("run_work", "work_is_of_a_new_run", by_hand(input=LONG.format(INPUT_LETTERS + 1)),
        "PF006", NO_PROTOCOL_2.format("its input is too large")),
    ("run_work", "work_is_of_a_new_run", by_hand(output=LONG.format(OUTPUT_LETTERS + 1)),
        "PF006", NO_PROTOCOL_2.format("its output is too large")),
    ("run_work", "work_is_stable", WORK.format("run_id = '{v1}'"),
        "PF006", WORK_ROW.format("its identity never changes")),
    ("run_work", "work_is_stable", WORK.format("flow_slug = 'other'"),
        "PF006", WORK_ROW.format("its identity never changes")),
    ("run_work", "work_is_stable", WORK.format("definition_sha256 = sha256('')"),
        "PF006", WORK_ROW.format("its identity never changes")),
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
    ("step_tasks", "protocol_2_address",
        "update pgflow.step_tasks set run_id = '{queued}', step_slug = 'b' where run_id = '{v1}'",
        "PF006", "task ({v1}, a, 0): queue, message and address are never changed"),
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


def test_a_run_without_work_speaks_protocol_1_and_gets_its_work_before_its_steps(session: Session) -> None:
    session.define()
    session.execute(
        "insert into pgflow.runs (run_id, flow_slug, input, remaining_steps)"
        f" values ('{NEW}', 'demo', '1', 2)"
    )
    run = UUID(NEW)
    assert session.reconcile(run) == {"outcome": "wrong_protocol", "protocol_version": 1}
    work = WORK_OF.format(NEW, "demo")
    with unchanged(session):
        # One step is enough to make it one of protocol 1 for good.
        assert_refused(
            session,
            "insert into pgflow.step_states (flow_slug, run_id, step_slug, remaining_deps, initial_tasks)"
            f" values ('demo', '{NEW}', 'a', 0, 1); {work}",
            "PF006",
            NO_PROTOCOL_2.format("it has begun with protocol 1"),
        )
    session.execute(work)
    assert session.work(run)["protocol_version"] == 2
    assert session.reconcile(run)["outcome"] == "idle"


def test_a_run_by_hand_may_be_as_large_as_the_contract_allows(world: World) -> None:
    session = world.session
    with unchanged(session), session.connection.transaction(force_rollback=True):
        session.execute(by_hand(input=LONG.format(INPUT_LETTERS), output=LONG.format(OUTPUT_LETTERS)))
        session.execute(world.said(RUN.format(f"output = {LONG.format(OUTPUT_LETTERS)}", "completed")))
        sizes = session.row(
            "select octet_length(input::text) as input, octet_length(output::text) as output"
            " from pgflow.runs where run_id = %s",
            NEW,
        )
        assert sizes == {"input": limit("input_bytes"), "output": limit("run_output_bytes")}


def test_an_input_does_not_grow_by_zeros_that_do_not_count(world: World) -> None:
    session = world.session
    grown = RUN.format("input = ('1.' || repeat('0', 16000))::jsonb", "number")
    with unchanged(session):
        assert session.value("select '1'::jsonb = ('1.' || repeat('0', 16000))::jsonb")
        assert_refused(session, world.said(grown), "PF006", world.said(RUN_IS_FINAL.format("number")))


OTHER_VERSION = WORK.format("protocol_version = 1")


def test_the_version_of_a_runs_protocol_is_final(world: World) -> None:
    """Refused by the guard, and without it by a constraint of the table."""
    said = world.said(OTHER_VERSION)
    with unchanged(world.session):
        assert_refused(
            world.session, said, "PF006", world.said(WORK_ROW.format("its identity never changes"))
        )
        off = "alter table pgflow.run_work disable trigger work_is_stable"
        assert refusal(world.session, f"{off}; {said}").sqlstate == "23514"


def test_the_id_of_a_run_is_final(world: World) -> None:
    """Refused by foreign keys that come before the guard, and by the guard without them."""
    said = world.said(RUN.format("run_id = gen_random_uuid()", "queued"))
    with unchanged(world.session):
        assert refusal(world.session, said).sqlstate == "23503"
        keys = (
            "set local session_replication_role = replica; alter table pgflow.runs enable always trigger {}; "
        )
        said = keys.format("protocol_2_identity") + said
        assert_refused(world.session, said, "PF006", world.said(RUN_IS_FINAL.format("queued")))


WORK_IDENTITY = {"run_id", "flow_slug", "protocol_version", "definition_sha256", "created_at"}


def test_no_column_of_a_works_identity_is_untested(world: World) -> None:
    changing = {"state", "requested_generation", "processed_generation", "requested_at", "failure_count"}
    changing |= {"last_failed_at", "last_error_sqlstate", "last_error", "next_attempt_at"}
    changing |= {"attention_at", "attention_reason"}
    columns = world.session.rows(
        "select attname from pg_attribute"
        " where attrelid = 'pgflow.run_work'::regclass and attnum > 0 and not attisdropped"
    )
    assert {row["attname"] for row in columns} == WORK_IDENTITY | changing
    statements = [case[2] for case in GUARDS if case[4] == WORK_ROW.format("its identity never changes")]
    statements.append(OTHER_VERSION)
    tried = {statement.partition(" set ")[2].partition(" = ")[0] for statement in statements}
    assert tried == WORK_IDENTITY


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
            f"update pgflow.runs set output = {LONG.format(200_000)} where run_id = '{{v1}}'",
            "update pgflow.runs set flow_slug = 'other' where run_id = '{v1}'",
            "update pgflow.runs set status = 'failed', failed_at = clock_timestamp() where run_id = '{v1}'",
            "update pgflow.runs set status = 'started', failed_at = null where run_id = '{v1}'",
            f"update pgflow.step_tasks set status = 'completed', completed_at = clock_timestamp(),"
            f" output = {LONG.format(200_000)} where run_id = '{{v1}}'",
            "update pgflow.step_tasks set message_id = message_id + 1000 where run_id = '{v1}'",
            "update pgflow.step_tasks set queue_name = 'other' where run_id = '{v1}'",
            "delete from pgflow.step_tasks where run_id = '{v1}'",
        ):
            session.execute(world.said(statement))
