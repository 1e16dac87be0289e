"""Deletion of a flow while runs of protocol 2 need it, and afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import UUID

import pytest
from psycopg.errors import ObjectNotInPrerequisiteState
from tests.dirty_runs.protocol import Session


def queued(session: Session, flow: str) -> UUID:
    return session.started(flow)


def held(session: Session, flow: str) -> UUID:
    run = session.started(flow)
    session.claimed(run, "a")
    return run


def settled(session: Session, flow: str) -> UUID:
    run = session.started(flow)
    session.complete(session.claimed(run, "a"), 1)
    return run


def failed(session: Session, flow: str) -> UUID:
    run = session.started(flow)
    session.fail(session.claimed(run, "a"))
    return run


def finalised(session: Session, flow: str) -> UUID:
    """Completed, but the chunk that finds nothing more is still to come."""
    run = settled(session, flow)
    session.settle_down(run)
    session.complete(session.claimed(run, "b"), 2)
    assert session.reconcile(run)["outcome"] == "finalized"
    return run


def completed(session: Session, flow: str) -> UUID:
    run = finalised(session, flow)
    session.settle_down(run)
    return run


def failed_in_attention(session: Session, flow: str) -> UUID:
    """Its last claim was lost, and reported a failure later; released by time, but nobody has looked."""
    run = session.started(flow)
    for outcome in ("recovered", "attention"):
        claim = session.claimed(run, "a")
        session.expire(claim)
        assert session.recover(run, "a", claim)["outcome"] == outcome
    assert session.fail(claim)["outcome"] == "accepted"
    session.release(run)
    return run


def finalised_long_ago(session: Session, flow: str) -> UUID:
    run = finalised(session, flow)
    session.release(run)
    return run


def with_an_active_claim(session: Session, flow: str) -> UUID:
    """Over, clean and old: no function leaves a claim active then, somebody's hand may."""
    run = failed(session, flow)
    session.release(run)
    session.execute("set session_replication_role = replica")
    session.execute(
        "update pgflow.task_claims set state = 'active', settled_at = null, settlement_kind = null,"
        " disposition = null, settlement_sha256 = null, settlement_bytes = null, settlement_error = null"
        " where run_id = %s",
        run,
    )
    session.execute("reset session_replication_role")
    return run


HOLDS: tuple[tuple[Callable[[Session, str], UUID], str], ...] = (
    (queued, "it is live"),
    (held, "it is live"),
    (settled, "it is live"),
    (finalised_long_ago, "its work is pending"),
    (failed_in_attention, "its work needs attention"),
    (with_an_active_claim, "it has an active claim"),
    (failed, "its replay evidence is kept until .+"),
    (completed, "its replay evidence is kept until .+"),
)


@pytest.mark.parametrize("queues", [False, True], ids=["one queue", "queue a step"])
@pytest.mark.parametrize(("prepare", "reason"), HOLDS, ids=[prepare.__name__ for prepare, _ in HOLDS])
def test_a_held_flow_is_not_deleted(
    lasting: Session, prepare: Callable[[Session, str], UUID], reason: str, queues: bool
) -> None:
    flow = f"{prepare.__name__}_{queues}".lower()
    lasting.define(flow, queues=queues)
    run = prepare(lasting, flow)
    before = lasting.everything()
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        lasting.execute("select pgflow.delete_flow_and_data(%s)", flow)
    assert re.fullmatch(
        f'flow "{flow}" cannot be deleted: run {run} of protocol 2: {reason}',
        str(caught.value.diag.message_primary),
    )
    assert caught.value.diag.message_hint == "Nothing was deleted."
    with pytest.raises(ObjectNotInPrerequisiteState, match=f'the definition of flow "{flow}" is frozen'):
        lasting.execute("update pgflow.flows set opt_timeout = 61 where flow_slug = %s", flow)
    for table in ("task_claims", "run_work"):
        if lasting.rows(f"select from pgflow.{table} where run_id = %s", run):
            with pytest.raises(ObjectNotInPrerequisiteState, match=f"is kept: .*{reason}"):
                lasting.execute(f"delete from pgflow.{table} where run_id = %s", run)
    assert lasting.everything() == before


@pytest.mark.parametrize("queues", [False, True], ids=["one queue", "queue a step"])
def test_a_released_flow_goes_with_claims_work_and_queues(lasting: Session, queues: bool) -> None:
    others = lasting.everything()
    flow = f"leaving_{queues}".lower()
    lasting.define(flow, queues=queues)
    for run in (failed(lasting, flow), completed(lasting, flow)):
        lasting.release(run)
    lasting.execute("select pgflow.start_flow(%s, '{}')", flow)  # of protocol 1, live: as ever it goes along
    if queues:
        # The flow's default queue, made with its first step, is no step's queue any more: it stays.
        assert lasting.everything().keys() - others.keys() >= {f"pgmq.q_{flow}__a", f"pgmq.a_{flow}__b"}
    lasting.execute("select pgflow.delete_flow_and_data(%s)", flow)
    after = lasting.everything()
    for table in set(after) - {f"pgmq.q_{flow}", f"pgmq.a_{flow}", "pgmq.meta"}:
        assert after[table] == others[table], table
    left = {row for row in after["pgmq.meta"] if row not in others["pgmq.meta"]}
    assert len(left) == (1 if queues else 0)


def test_what_the_retained_evidence_holds_goes_a_day_later(lasting: Session) -> None:
    lasting.define("aging")
    run = failed(lasting, "aging")
    with pytest.raises(ObjectNotInPrerequisiteState):
        lasting.execute("select pgflow.delete_flow_and_data('aging')")
    lasting.release(run)
    lasting.execute("update pgflow.flows set opt_timeout = 61 where flow_slug = 'aging'")
    lasting.execute("select pgflow.delete_flow_and_data('aging')")
    assert lasting.rows("select from pgflow.runs where run_id = %s", run) == []
