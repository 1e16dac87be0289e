"""What the guards of protocol 2 refuse whoever writes by SQL; updates of rows of protocol 1 go on as ever."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import psycopg
import pytest
from psycopg.errors import ForeignKeyViolation
from tests.dirty_runs.isolation.conftest import World
from tests.dirty_runs.protocol import WORKER, Session, token

from pgflow_migrate.dirty_runs.limits import limit

INPUT_BYTES, RUN_OUTPUT_BYTES = limit("input_bytes"), limit("run_output_bytes")

RUN = ("runs", "run {} of protocol 2: address, input and a final status are never changed")
TASK = "task ({run_id}, {step_slug}, {task_index}): queue, message and address are never changed"
UPDATE_TASK = (
    "update pgflow.step_tasks set {} where (run_id, step_slug, task_index)"
    " = (%(run_id)s, %(step_slug)s, %(task_index)s)"
)
WORK = ("run_work", "work row of run {}: its identity never changes")


@pytest.mark.parametrize(
    ("table", "message", "change"),
    [
        (*RUN, "input = '{{\"other\": 1}}'"),
        (*RUN, "flow_slug = 'plain'"),
        (*WORK, "protocol_version = 1, definition_sha256 = null"),
        (*WORK, "definition_sha256 = sha256('other')"),
        (*WORK, "flow_slug = 'plain'"),
        (*WORK, "run_id = gen_random_uuid()"),
        (*WORK, "run_id = '{plain}', flow_slug = 'plain'"),
        (*WORK, "created_at = created_at + interval '1 s'"),
    ],
)
def test_the_identity_of_a_run_is_final(world: World, table: str, message: str, change: str) -> None:
    change = change.format(plain=world.plain["queued"])
    with world.unchanged():
        for run in world.runs.values():
            error = world.error(f"update pgflow.{table} set {change} where run_id = %(run)s", {"run": run})
            assert (error.sqlstate, error.diag.message_primary) == ("PF006", message.format(run))


def test_the_id_of_a_run_is_final(world: World) -> None:
    """Its states refer to it, and their foreign key is looked at before the guard."""
    with world.unchanged():
        for run in world.runs.values():
            error = world.error(
                "update pgflow.runs set run_id = gen_random_uuid() where run_id = %(run)s", {"run": run}
            )
            assert (error.sqlstate, error.diag.constraint_name) == ("23503", "step_states_run_id_fkey")


@pytest.mark.parametrize(
    ("situation", "status"),
    [("failed", "started"), ("failed", "completed"), ("completed", "failed"), ("completed", "started")],
)
def test_a_final_status_is_final(world: World, situation: str, status: str) -> None:
    run = world.runs[situation]
    with world.unchanged():
        error = world.error(
            "update pgflow.runs set status = %(status)s, failed_at = null, completed_at = null"
            " where run_id = %(run)s",
            {"run": run, "status": status},
        )
        assert (error.sqlstate, error.diag.message_primary) == (
            "PF006",
            RUN[1].format(run),
        )


# As text: quotes and so many letters.
OUTPUT = "update pgflow.runs set output = to_jsonb(repeat('x', {} - 2)) where run_id = %(run)s"


def test_the_output_of_a_run_is_bounded(world: World) -> None:
    with world.unchanged():
        for run in world.runs.values():
            error = world.error(OUTPUT.format(RUN_OUTPUT_BYTES + 1), {"run": run})
            assert (error.sqlstate, error.diag.message_primary) == (
                "PF006",
                f"run {run} of protocol 2: its output is bounded",
            )
    run = world.runs["completed"]
    for allowed, size in ((run, RUN_OUTPUT_BYTES), (world.plain["started"], RUN_OUTPUT_BYTES + 1)):
        world.session.connection.execute(OUTPUT.format(size).encode(), {"run": allowed})
        assert (
            world.session.value(
                "select octet_length(output::text) from pgflow.runs where run_id = %s", allowed
            )
            == size
        )


BECOME_2 = (
    "insert into pgflow.run_work (run_id, flow_slug, definition_sha256)"
    " values (%(run)s, %(flow)s, sha256('any'))"
)


def test_a_run_of_protocol_1_never_becomes_one_of_protocol_2(world: World) -> None:
    with world.unchanged():
        for run in world.plain.values():
            error = world.error(BECOME_2, {"run": run, "flow": "plain"})
            assert (error.sqlstate, error.diag.message_primary) == (
                "PF006",
                f"run {run} cannot speak protocol 2: it has begun with protocol 1",
            )


@pytest.mark.parametrize(
    ("run", "fault"),
    [
        ("'plain', '{}', 'started', null, null", None),
        ("'plain', '{}', 'completed', now(), '{}'", "it has begun with protocol 1"),
        (f"'plain', '{{}}', 'started', null, to_jsonb(repeat('x', {RUN_OUTPUT_BYTES - 2}))", None),
        (
            f"'plain', '{{}}', 'started', null, to_jsonb(repeat('x', {RUN_OUTPUT_BYTES - 1}))",
            "its output is too large",
        ),
        ("'demo', '{}', 'started', null, null", "its flow is another"),
        (f"'plain', to_jsonb(repeat('x', {INPUT_BYTES - 2})), 'started', null, null", None),
        (
            f"'plain', to_jsonb(repeat('x', {INPUT_BYTES - 1})), 'started', null, null",
            "its input is too large",
        ),
    ],
    ids=[
        "new",
        "over",
        "largest output",
        "larger output",
        "of another flow",
        "largest input",
        "larger input",
    ],
)
def test_only_a_new_run_of_the_flow_may_get_a_work_row(
    demo_world: World, run: str, fault: str | None
) -> None:
    session = demo_world.session
    new = session.value(
        "insert into pgflow.runs (flow_slug, input, status, completed_at, output, remaining_steps)"
        f" values ({run}, 0) returning run_id"
    )
    assert session.request(new) == {"outcome": "wrong_protocol", "protocol_version": 1}
    if fault is None:
        session.connection.execute(BECOME_2.encode(), {"run": new, "flow": "plain"})
        assert session.request(new)["outcome"] == "requested"
        return
    with demo_world.unchanged():
        error = demo_world.error(BECOME_2, {"run": new, "flow": "plain"})
        assert (error.sqlstate, error.diag.message_primary) == (
            "PF006",
            f"run {new} cannot speak protocol 2: {fault}",
        )


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_work_row_is_not_made_in_an_old_snapshot(session: Session, isolation: str) -> None:
    """Which may hide that its run has begun with protocol 1."""
    session.define()
    new = session.value(
        "insert into pgflow.runs (flow_slug, input, remaining_steps)"
        " values ('demo', '{}', 2) returning run_id"
    )
    with pytest.raises(psycopg.Error) as caught:
        session.execute(
            f"begin isolation level {isolation};"
            "insert into pgflow.run_work (run_id, flow_slug, definition_sha256)"
            f" values ('{new}', 'demo', sha256('any'))"
        )
    session.execute("rollback")
    assert (caught.value.sqlstate, caught.value.diag.message_primary) == (
        "PF006",
        f"run {new} cannot speak protocol 2: its steps may be hidden by a snapshot",
    )
    assert session.rows("select from pgflow.run_work") == []


def test_rows_of_protocol_1_are_written_as_ever(world: World) -> None:
    session = world.session
    run = world.plain["failed"]
    session.execute(
        "update pgflow.runs set status = 'started', failed_at = null, input = '2' where run_id = %s", run
    )
    session.execute(
        "update pgflow.step_tasks set message_id = 1000, queue_name = 'elsewhere' where run_id = %s", run
    )
    assert session.value("select status from pgflow.runs where run_id = %s", run) == "started"
    assert session.value("select queue_name from pgflow.step_tasks where run_id = %s", run) == "elsewhere"


def deleted(session: Session, run: UUID, *tables: str) -> None:
    """Delete a run's rows by hand, in one transaction."""
    with session.connection.transaction():
        session.execute("update pgflow.step_tasks set current_claim_id = null where run_id = %s", run)
        for table in tables:
            session.execute(f"delete from pgflow.{table} where run_id = %s", run)


def test_a_run_of_protocol_2_has_its_work_row(lasting: Session) -> None:
    lasting.define("worked")
    run = lasting.started("worked")
    lasting.fail(lasting.claimed(run, "a"))
    lasting.release(run)
    before = lasting.everything()
    with pytest.raises(psycopg.Error, match=f"run {run} of protocol 2 has lost its work row") as caught:
        lasting.execute(f"delete from pgflow.run_work where run_id = '{run}'")
    assert caught.value.sqlstate == "PF006"
    # Without its work row it is no new run, either.
    with pytest.raises(psycopg.Error, match="cannot speak protocol 2") as caught:
        lasting.execute(
            f"with gone as (delete from pgflow.run_work where run_id = '{run}' returning *)"
            " insert into pgflow.run_work (run_id, flow_slug, definition_sha256)"
            " select run_id, flow_slug, sha256('other') from gone"
        )
    assert caught.value.sqlstate == "PF006"
    # All that is the run's, but for its work row.
    with pytest.raises(ForeignKeyViolation) as violation:
        deleted(lasting, run, "task_claims", "step_tasks", "step_states", "runs")
    assert violation.value.diag.constraint_name == "run_work_run_id_fkey"
    assert lasting.everything() == before
    deleted(lasting, run, "run_work", "task_claims", "step_tasks", "step_states", "runs")
    assert lasting.rows("select from pgflow.run_work where run_id = %s", run) == []


@pytest.mark.parametrize(
    "change", ["queue_name = 'elsewhere'", "message_id = message_id + 1000", "message_id = null"]
)
def test_the_message_of_a_task_is_final(world: World, change: str) -> None:
    with world.unchanged():
        for task in world.tasks():
            error = world.error(UPDATE_TASK.format(change), task)
            assert (error.sqlstate, error.diag.message_primary) == ("PF006", TASK.format(**task))


@pytest.mark.parametrize(
    "change", ["task_index = 7", "step_slug = case step_slug when 'a' then 'b' else 'a' end, task_index = 7"]
)
def test_the_address_of_a_task_is_final(world: World, change: str) -> None:
    """Where claims refer to it, their foreign key is looked at before the guard."""
    claimed = {row["run_id"] for row in world.session.rows("select run_id from pgflow.task_claims")}
    refused = []
    with world.unchanged():
        for task in world.tasks():
            error = world.error(UPDATE_TASK.format(change), task)
            if error.sqlstate == "23503":
                assert error.diag.constraint_name == "task_claims_run_id_step_slug_task_index_fkey"
            else:
                assert (error.sqlstate, error.diag.message_primary) == ("PF006", TASK.format(**task))
            refused.append((task["run_id"] in claimed, error.sqlstate))
    assert {(True, "23503"), (False, "PF006")} <= set(refused)


@pytest.mark.parametrize(
    ("situation", "change", "fault"),
    [
        ("held", "run_id = '{completed}'", "its identity never changes"),
        ("held", "requested_generation = requested_generation + 2", "requests are raised one by one"),
        ("dispatched", "requested_generation = requested_generation - 1", "requests are raised one by one"),
        ("completed", "processed_generation = processed_generation - 1", "what is processed stays processed"),
        (
            "attention",
            "state = 'clean', attention_at = null, attention_reason = null",
            "attention is never cleared by itself",
        ),
    ],
)
def test_a_work_row_is_stable(world: World, situation: str, change: str, fault: str) -> None:
    run = world.runs[situation]
    change = change.format(completed=world.runs["completed"])
    with world.unchanged():
        error = world.error(f"update pgflow.run_work set {change} where run_id = %(run)s", {"run": run})
        assert (error.sqlstate, error.diag.message_primary) == ("PF006", f"work row of run {run}: {fault}")
        error = world.error("delete from pgflow.run_work where run_id = %(run)s", {"run": run})
        assert error.sqlstate == "55000"


@pytest.mark.parametrize(
    "truncate",
    [
        "pgflow.run_work",
        "pgflow.task_claims, pgflow.step_tasks",
        "pgflow.step_tasks cascade",
        "pgflow.runs cascade",
        "pgflow.flows cascade",
    ],
)
def test_evidence_is_not_truncated(demo_world: World, truncate: str) -> None:
    with demo_world.unchanged():
        error = demo_world.error(f"truncate {truncate}")
    assert error.sqlstate == "PF006"
    assert str(error.diag.message_primary).endswith("is evidence and is not truncated")


def test_tasks_that_nobody_has_claimed_are_not_truncated_either(demo: Session) -> None:
    demo.started()
    before = demo.everything()
    with pytest.raises(psycopg.Error) as caught:
        demo.execute("truncate pgflow.step_tasks cascade")
    assert caught.value.sqlstate == "PF006"
    assert demo.everything() == before


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_rows_that_an_old_snapshot_does_not_show_are_not_truncated(
    demo: Session, open_session: Callable[[], Session], isolation: str
) -> None:
    other = open_session()
    other.execute(f"begin isolation level {isolation}")
    assert other.rows("select from pgflow.run_work") == []
    demo.started()
    before = demo.everything()
    for truncate in ("runs", "step_tasks"):
        other.execute("savepoint before")
        with pytest.raises(psycopg.Error) as caught:
            other.execute(f"truncate pgflow.{truncate} cascade")
        assert caught.value.sqlstate == "PF006"
        other.execute("rollback to before")
    other.execute("rollback")
    assert demo.everything() == before


def test_without_protocol_2_tables_are_truncated_as_ever(session: Session) -> None:
    session.define()
    session.execute("select pgflow.start_flow('demo', '{}')")
    session.execute("truncate pgflow.runs cascade")
    assert session.rows("select from pgflow.step_tasks") == []
    session.execute("truncate pgflow.flows cascade")
    assert session.rows("select from pgflow.steps") == []


CLAIM = """
insert into pgflow.task_claims (
  claim_id, run_id, step_slug, task_index, claim_number, queue_name, message_id, worker_id, max_attempts,
  when_exhausted, timeout_seconds, claimed_at, lease_expires_at
)
select %(token)s, task.run_id, task.step_slug, 0, {number}, task.queue_name, task.message_id + {off},
  %(worker)s, 1, 'fail', 60, now(), now() + interval '90 s'
from pgflow.step_tasks task
where (task.run_id, task.step_slug) = (%(run)s, %(step)s)
"""


@pytest.mark.parametrize(
    ("situation", "step", "number", "off", "fault"),
    [
        ("queued", "a", 2, 0, "its number is not the next"),
        ("queued", "a", 1, 1, "its message is not its task's"),
        ("held", "a", 2, 0, "its task is not queued"),
        ("dispatched", "a", 2, 0, "its run's work is not clean"),
        ("dispatched", "b", 1, 0, "its run's work is not clean"),
        ("failed", "a", 2, 0, "its run is not a started one of protocol 2"),
        ("completed", "b", 2, 0, "its run is not a started one of protocol 2"),
        ("attention", "a", 3, 0, "its run's work is not clean"),
        ("plain", "a", 1, 0, "its run is not a started one of protocol 2"),
    ],
)
def test_a_claim_is_evidence(
    world: World, situation: str, step: str, number: int, off: int, fault: str
) -> None:
    run = world.runs.get(situation, world.plain["queued"])
    claim = token()
    with world.unchanged():
        error = world.error(
            CLAIM.format(number=number, off=off), {"token": claim, "worker": WORKER, "run": run, "step": step}
        )
        assert (error.sqlstate, error.diag.message_primary) == (
            "PF006",
            f"claim {claim} on task ({run}, {step}, 0): {fault}",
        )


@pytest.mark.parametrize(
    ("condition", "change", "fault"),
    [
        ("state = 'settled'", "settled_at = now()", "it is settled already"),
        ("state = 'settled'", "state = 'active'", "it is settled already"),
        ("state = 'revoked'", "revoked_reason = 'run_failed'", "it is revoked already"),
        (
            "state = 'active'",
            "lease_expires_at = lease_expires_at + interval '1 s'",
            "its identity never changes",
        ),
        ("state = 'active'", "worker_id = gen_random_uuid()", "its identity never changes"),
        ("state = 'active'", "message_id = message_id + 1000", "its identity never changes"),
    ],
)
def test_a_claim_changes_only_by_its_end(world: World, condition: str, change: str, fault: str) -> None:
    claims = world.values(f"select claim_id from pgflow.task_claims where {condition}")
    assert claims
    with world.unchanged():
        for claim in claims:
            for statement, state, text in (
                (f"update pgflow.task_claims set {change}", "PF006", fault),
                ("delete from pgflow.task_claims", "55000", "is kept"),
            ):
                error = world.error(f"{statement} where claim_id = %(claim)s", {"claim": claim})
                assert error.sqlstate == state
                assert text in str(error.diag.message_primary)
