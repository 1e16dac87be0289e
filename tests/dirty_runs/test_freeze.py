"""Neither rows of a run of protocol 2 are deleted nor its definition changed before it is safe."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from tests.dirty_runs.changes import unchanged
from tests.dirty_runs.protocol import Session
from tests.dirty_runs.world import World, assert_refused, goes_through_without, made

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server


@pytest.fixture(scope="module")
def world(server: Server, templates: Templates) -> Iterator[World]:
    """The world of this file."""
    with made(server, templates, "dirty_runs_freeze") as world:
        yield world


# -- deletion ----------------------------------------------------------------------------------------------

HOLDS = {
    "live": "it is live",
    "pending": "its work is pending",
    "attention": "its work needs attention",
    "active claim": "it has an active claim",
    "evidence": "its replay evidence is kept until %",
}


def over(session: Session, how: str) -> tuple[str, str]:
    """A run that is held for one reason alone; its id, and that of its claim."""
    run = session.started()
    claim = session.claimed(run, "a")
    if how != "live":
        if how == "attention":
            session.execute(
                "update pgflow.run_work set state = 'attention', attention_at = now(),"
                " attention_reason = 'message_missing' where run_id = %s",
                run,
            )
        if how == "pending":
            session.complete(claim, 1)
            session.settle_down(run)
            session.complete(session.claimed(run, "b"), 2)
            assert session.reconcile(run)["outcome"] == "finalized"
        else:
            session.fail(claim)
        if how == "active claim":
            session.execute("set session_replication_role = replica")
            session.execute(
                "update pgflow.task_claims set state = 'active', settled_at = null, settlement_kind = null,"
                " disposition = null, settlement_sha256 = null, settlement_bytes = null,"
                " settlement_error = null where claim_id = %s",
                claim,
            )
            session.execute("reset session_replication_role")
        if how != "evidence":
            session.release(run)
    return str(run), str(claim)


@pytest.mark.parametrize("how", HOLDS)
def test_evidence_is_not_deleted_before_it_is_safe(session: Session, how: str) -> None:
    session.define()
    run, claim = over(session, how)
    with unchanged(session):
        assert_refused(
            session,
            f"delete from pgflow.run_work where run_id = '{run}'",
            "55000",
            f"the work row of run {run} is kept: {HOLDS[how]}",
        )
        assert_refused(
            session,
            f"update pgflow.step_tasks set current_claim_id = null where run_id = '{run}';"
            f"delete from pgflow.task_claims where claim_id = '{claim}'",
            "55000",
            f"claim {claim} is kept: run {run}: {HOLDS[how]}",
        )
        assert_refused(
            session,
            "select pgflow.delete_flow_and_data('demo')",
            "55000",
            f'flow "demo" cannot be deleted: run {run} of protocol 2: {HOLDS[how]}',
        )


def test_a_released_run_is_deleted_with_its_work_and_claims_and_not_its_work_alone(session: Session) -> None:
    session.define()
    run = session.started()
    session.fail(session.claimed(run, "a"))
    session.release(run)
    with unchanged(session):
        assert_refused(
            session,
            f"delete from pgflow.run_work where run_id = '{run}'",
            "PF006",
            f"run {run} of protocol 2 has lost its work row",
        )
        goes_through_without(
            session,
            "alter table pgflow.run_work disable trigger run_keeps_its_work",
            f"delete from pgflow.run_work where run_id = '{run}'",
        )
        # Not before the commit: until then the run may still go, too.
        session.execute("begin")
        session.execute("delete from pgflow.run_work where run_id = %s", run)
        with pytest.raises(psycopg.Error) as refused:
            session.execute("commit")
        assert refused.value.sqlstate == "PF006"
    session.execute("begin")
    session.execute("update pgflow.step_tasks set current_claim_id = null")
    for table in ("task_claims", "run_work", "step_tasks", "step_states", "runs"):
        session.execute(f"delete from pgflow.{table} where run_id = %s", run)
    session.execute("commit")
    assert session.value("select count(*) from pgflow.runs") == 0


# -- the definition is frozen ------------------------------------------------------------------------------

FLOW = "update pgflow.flows set {} where flow_slug = 'demo'"
STEPS = "update pgflow.steps set {} where flow_slug = 'demo'"
STEP_B = STEPS + " and step_slug = 'b'"
FREEZE = {
    "attempts of the flow": FLOW.format("opt_max_attempts = 2"),
    "back-off of the flow": FLOW.format("opt_base_delay = 9"),
    "timeout of the flow": FLOW.format("opt_timeout = 61"),
    "slug of the flow": FLOW.format("flow_slug = 'renamed'"),
    "flow gone": "delete from pgflow.flows where flow_slug = 'demo'",
    "type": STEP_B.format("step_type = 'map'"),
    "order": STEP_B.format("step_index = 10"),
    "number of dependencies": STEP_B.format("deps_count = 0"),
    "attempts, in effect the same": STEPS.format("opt_max_attempts = 1"),
    "timeout, in effect the same": STEPS.format("opt_timeout = 60"),
    "start delay": STEP_B.format("opt_start_delay = 5"),
    "back-off": STEPS.format("opt_base_delay = 0"),
    "route": STEPS.format("queue_name = 'elsewhere'"),
    "required pattern": STEPS.format("required_input_pattern = '{}'"),
    "forbidden pattern": STEPS.format("forbidden_input_pattern = '{}'"),
    "exhaustion": STEPS.format("when_exhausted = 'skip'"),
    "unmet condition": STEPS.format("when_unmet = 'fail'"),
    "slug": STEPS.format("step_slug = 'c'") + " and step_slug = 'b'",
    "new step": "insert into pgflow.steps (flow_slug, step_slug, step_index, deps_count, queue_name)"
    " values ('demo', 'c', 2, 0, 'demo')",
    "new step by its function": "select pgflow.add_step('demo', 'c')",
    "step gone": "delete from pgflow.steps where flow_slug = 'demo' and step_slug = 'b'",
    "step moved in": "update pgflow.steps set flow_slug = 'demo', step_slug = 'c', step_index = 2"
    " where flow_slug = 'other' and step_slug = 'b'",
    "step moved out": STEP_B.format("flow_slug = 'other', step_slug = 'c', step_index = 2"),
    "new edge": "insert into pgflow.deps (flow_slug, dep_slug, step_slug) values ('demo', 'b', 'a')",
    "edge turned round": "update pgflow.deps set dep_slug = 'b', step_slug = 'a' where flow_slug = 'demo'",
    "edge gone": "delete from pgflow.deps where flow_slug = 'demo'",
}


@pytest.mark.parametrize("statement", FREEZE.values(), ids=FREEZE)
def test_a_definition_is_frozen_while_a_run_holds_it(world: World, statement: str) -> None:
    session = world.session
    with unchanged(session):
        assert_refused(
            session,
            statement,
            "55000",
            'the definition of flow "demo" is frozen: run % of protocol 2: it is live',
        )


def test_what_changes_nothing_in_a_frozen_definition_stays_allowed(world: World) -> None:
    session = world.session
    with unchanged(session):
        session.execute("select pgflow.create_flow('demo', 1, 0, 60)")
        session.execute("select pgflow.add_step('demo', 'a')")
        session.execute("select pgflow.add_step('demo', 'b', '{a}', start_delay => 0)")
        session.execute(
            "insert into pgflow.deps (flow_slug, dep_slug, step_slug) values ('demo', 'a', 'b')"
            " on conflict do nothing"
        )
        session.execute("update pgflow.steps set opt_timeout = opt_timeout, queue_name = lower(queue_name)")
        session.execute("update pgflow.flows set opt_max_attempts = 1 where flow_slug = 'demo'")


def test_other_flows_are_not_frozen(world: World) -> None:
    session = world.session
    with unchanged(session), session.connection.transaction(force_rollback=True):
        session.execute("select pgflow.add_step('other', 'c', '{b}')")
        session.execute("update pgflow.flows set opt_timeout = 61 where flow_slug = 'other'")
        session.execute("delete from pgflow.deps where flow_slug = 'other' and step_slug = 'c'")
        session.execute("select pgflow.delete_flow_and_data('other')")
        session.execute("select pgflow.create_flow('third')")


@pytest.mark.parametrize("how", HOLDS)
def test_every_reason_to_keep_a_run_freezes_its_definition(session: Session, how: str) -> None:
    session.define()
    run, _ = over(session, how)
    frozen = f'the definition of flow "demo" is frozen: run {run} of protocol 2: {HOLDS[how]}'
    with unchanged(session):
        for statement in (
            "update pgflow.flows set opt_timeout = 61",
            "update pgflow.steps set opt_timeout = 61",
            "delete from pgflow.deps",
        ):
            assert_refused(session, statement, "55000", frozen)


def test_a_definition_may_be_changed_once_all_its_runs_are_released(session: Session) -> None:
    session.define()
    runs = [session.started() for _ in range(2)]
    for run in runs:
        session.fail(session.claimed(run, "a"))
    change = "update pgflow.steps set opt_timeout = 61"
    session.release(runs[0])
    with unchanged(session):
        assert_refused(session, change, "55000", f'the definition of flow "demo" is frozen: run {runs[1]}')
    session.release(runs[1])
    session.execute(change)
    # The next start is of the new definition.
    run = session.started()
    assert session.work(run)["definition_sha256"] != session.work(runs[0])["definition_sha256"]
    assert session.claim(run, "a")["policy"]["timeout"] == 61


def test_runs_of_protocol_1_freeze_nothing(session: Session) -> None:
    session.define()
    session.execute("select pgflow.start_flow('demo', '{}')")
    session.execute("update pgflow.steps set opt_timeout = 61")
    session.execute("select pgflow.add_step('demo', 'c', '{b}')")
    session.execute("select pgflow.delete_flow_and_data('demo')")
    assert session.value("select count(*) from pgflow.flows") == 0
