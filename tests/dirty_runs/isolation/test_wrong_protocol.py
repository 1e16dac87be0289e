"""Protocol 2 on runs of protocol 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from tests.dirty_runs.isolation.conftest import World

from pgflow_migrate.dirty_runs.inventory import ENTRY, INTERNAL, INVENTORY

WRONG = {"outcome": "wrong_protocol", "protocol_version": 1}
STALE = {"outcome": "stale", "reason": "unknown"}
NOT_2 = "run {run} is not a started one of protocol 2"


@dataclass(frozen=True)
class Call:
    """A call of protocol 2 with a run of protocol 1: %(run)s, its step a, %(id)s the message of that.

    Attributes:
        entry: the inventory's name of the function.
        query: one column.
        returns: its value.
        error: or SQLSTATE and message.
    """

    entry: str
    query: str
    returns: Any = None
    error: tuple[str, str] | None = None


ENTRIES = (
    Call(
        "claim_task_v2(uuid, text, integer, text, bigint[], uuid, uuid)",
        "select pgflow.claim_task_v2(%(run)s, 'a', 0, 'plain', array[%(id)s::bigint], gen_random_uuid())",
        WRONG,
    ),
    Call(
        "claim_task_v2(uuid, text, integer, text, bigint[], uuid, uuid)",
        "select pgflow.claim_task_v2(%(run)s, 'b', 0, null, null, gen_random_uuid(), %(run)s)",
        WRONG,
    ),
    Call(
        "recover_task_v2(uuid, text, integer, uuid, bigint[])",
        "select pgflow.recover_task_v2(%(run)s, 'a', 0, gen_random_uuid(), array[%(id)s::bigint])",
        WRONG,
    ),
    Call("complete_claim_v2(uuid, jsonb)", "select pgflow.complete_claim_v2(%(run)s, '1')", STALE),
    Call("fail_claim_v2(uuid, text)", "select pgflow.fail_claim_v2(%(run)s, 'no')", STALE),
    Call("reconcile_one_run(uuid)", "select pgflow.reconcile_one_run(%(run)s)", WRONG),
    Call("request_reconciliation_v2(uuid)", "select pgflow.request_reconciliation_v2(%(run)s)", WRONG),
    Call(
        "start_flow_v2(text, jsonb, uuid)",
        "select pgflow.start_flow_v2('plain', '{}', %(run)s) - 'run_id'",
        {"outcome": "conflict", "reasons": ["run_id"]},
    ),
)

INTERNALS = (
    Call("_v2_settle(uuid, text, jsonb)", "select pgflow._v2_settle(%(run)s, 'succeeded', '1')", STALE),
    Call(
        "_v2_chunk(pgflow.runs)",
        "select pgflow._v2_chunk(r) from pgflow.runs r where r.run_id = %(run)s",
        error=("PF007", 'flow "plain" is no longer what run {run} began with'),
    ),
    Call(
        "_v2_dispatch_step(uuid, text)",
        "select pgflow._v2_dispatch_step(%(run)s, 'b')",
        error=("PF005", NOT_2),
    ),
    Call(
        "_v2_fail_run(uuid, text, text)",
        "select pgflow._v2_fail_run(%(run)s, 'a', 'no')",
        error=("PF005", NOT_2),
    ),
    Call("_v2_hold_definition(text)", "select pgflow._v2_hold_definition('plain')", ""),
    Call("_v2_request(uuid)", "select pgflow._v2_request(%(run)s)"),
)


def test_every_function_that_the_inventory_says_is_called_here() -> None:
    for calls, test in ((ENTRIES, ENTRY), (INTERNALS, INTERNAL)):
        assert {call.entry for call in calls} == {w.name for w in INVENTORY if w.test == test}


def _check(world: World, call: Call, situation: str) -> None:
    run = world.plain[situation]
    (msg_id,) = world.values(
        "select message_id from pgflow.step_tasks where (run_id, step_slug) = (%(run)s, 'a')", {"run": run}
    )
    named = {"run": run, "id": msg_id}
    with world.unchanged():
        if call.error is None:
            assert world.values(call.query, named) == [call.returns]
            return
        error = world.error(call.query, named)
        sqlstate, message = call.error
        assert (error.sqlstate, error.diag.message_primary) == (sqlstate, message.format(run=run))


@pytest.mark.parametrize("situation", ["queued", "started", "failed"])
@pytest.mark.parametrize("call", ENTRIES, ids=lambda call: call.query[14:50])
def test_an_entry_of_protocol_2_changes_nothing_of_protocol_1(
    demo_world: World, call: Call, situation: str
) -> None:
    _check(demo_world, call, situation)


@pytest.mark.parametrize("situation", ["queued", "started"])
@pytest.mark.parametrize("call", INTERNALS, ids=lambda call: call.query[14:50])
def test_an_internal_function_of_protocol_2_refuses_other_runs(
    demo_world: World, call: Call, situation: str
) -> None:
    _check(demo_world, call, situation)


@pytest.mark.parametrize("situation", ["failed", "completed"])
@pytest.mark.parametrize("function", ["_v2_dispatch_step(%(run)s, 'b')", "_v2_fail_run(%(run)s, 'a', 'no')"])
def test_an_internal_function_does_not_revive_a_run_that_is_over(
    world: World, function: str, situation: str
) -> None:
    run = world.runs[situation]
    with world.unchanged():
        error = world.error(f"select pgflow.{function}", {"run": run})
    assert (error.sqlstate, error.diag.message_primary) == ("PF005", NOT_2.format(run=run))


def test_a_processor_without_an_id_looks_at_runs_of_protocol_2_alone(demo_world: World) -> None:
    session = demo_world.session
    session.execute("set session_replication_role = replica")
    session.execute("delete from pgflow.run_work")
    session.execute("reset session_replication_role")
    with demo_world.unchanged():
        assert session.reconcile() == {"outcome": "idle", "busy": 0}
