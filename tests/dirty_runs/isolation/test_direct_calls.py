"""Callbacks and helpers of protocol 1 on runs of protocol 2 in every situation, and on their messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.dirty_runs.isolation.conftest import WORKER_OF_1, World

from pgflow_migrate.dirty_runs.inventory import DIRECT, INVENTORY

VOID = [""]  # PL/pgSQL; of SQL it is None
STATE = "(select s from pgflow.step_states s where (s.run_id, s.step_slug) = (%(run)s, %(step)s))"
STEP = "(select s from pgflow.steps s where (s.flow_slug, s.step_slug) = (%(flow)s, %(step)s))"


@dataclass(frozen=True)
class Call:
    """A call of protocol 1.

    Attributes:
        entry: the inventory's name of the function.
        query: one column. On a run: %(run)s, %(step)s, %(flow)s. On messages: %(queue)s, %(ids)s, the ids of
            a queue's messages that belong to tasks of protocol 2.
        returns: the values, or PF005; of a call on messages a function of the ids that are in the queue, and
            of all.
    """

    entry: str
    query: str
    returns: Any


ON_RUNS = (
    Call(
        "complete_task(uuid, text, integer, jsonb)",
        "select pgflow.complete_task(%(run)s, %(step)s, 0, '1')",
        "PF005",
    ),
    Call(
        "fail_task(uuid, text, integer, text)",
        "select pgflow.fail_task(%(run)s, %(step)s, 0, 'no')",
        "PF005",
    ),
    Call("start_ready_steps(uuid)", "select pgflow.start_ready_steps(%(run)s)", VOID),
    Call(
        "cascade_complete_taskless_steps(uuid)",
        "select pgflow.cascade_complete_taskless_steps(%(run)s)",
        [0],
    ),
    # Whether the run goes on: nothing is resolved in it, so unless it had failed before.
    Call(
        "cascade_resolve_conditions(uuid)",
        "select pgflow.cascade_resolve_conditions(%(run)s) = (select status <> 'failed' from pgflow.runs"
        " where run_id = %(run)s)",
        [True],
    ),
    Call(
        "_cascade_force_skip_steps(uuid, text, text)",
        "select pgflow._cascade_force_skip_steps(%(run)s, %(step)s, 'handler_failed')",
        "PF005",
    ),
    Call(
        "_complete_step_if_last_task(pgflow.step_states, pgflow.steps, jsonb)",
        f"select pgflow._complete_step_if_last_task({STATE}, {STEP}, '1')",
        "PF005",
    ),
    Call(
        "_end_unfinished_tasks(uuid, text[], text)",
        "select pgflow._end_unfinished_tasks(%(run)s, array[%(step)s::text], 'cancelled')",
        "PF005",
    ),
    Call(
        "_end_unfinished_tasks(uuid, text[], text)",
        "select pgflow._end_unfinished_tasks(%(run)s, null, 'skipped')",
        "PF005",
    ),
    Call(
        "_fail_run_for_exhausted_task(uuid, text, text)",
        "select pgflow._fail_run_for_exhausted_task(%(run)s, %(step)s, 'no')",
        "PF005",
    ),
    Call(
        "_fail_run_for_type_violation(uuid, text, integer, jsonb, text, text)",
        "select pgflow._fail_run_for_type_violation(%(run)s, %(step)s, 0, '1', 'no', 'no')",
        "PF005",
    ),
    Call(
        "_fail_run_for_unmet_condition(uuid, text)",
        "select pgflow._fail_run_for_unmet_condition(%(run)s, %(step)s)",
        "PF005",
    ),
    Call(
        "_skip_step_for_exhausted_task(uuid, text, text, boolean)",
        "select pgflow._skip_step_for_exhausted_task(%(run)s, %(step)s, 'no', false)",
        "PF005",
    ),
    Call(
        "_skip_step_for_exhausted_task(uuid, text, text, boolean)",
        "select pgflow._skip_step_for_exhausted_task(%(run)s, %(step)s, 'no', true)",
        "PF005",
    ),
    Call(
        "_release_dependents_of_skipped(uuid, text[])",
        "select pgflow._release_dependents_of_skipped(%(run)s, array[%(step)s::text])",
        [None],
    ),
    Call(
        "_archive_task_message(uuid, text, integer)",
        "select pgflow._archive_task_message(%(run)s, %(step)s, 0)",
        [None],
    ),
    Call(
        "_provision_queue(text, text)",
        "select pgflow._provision_queue(%(flow)s, (select queue_name from pgflow.steps"
        " where (flow_slug, step_slug) = (%(flow)s, %(step)s)))",
        VOID,
    ),
)

ON_MESSAGES = (
    Call(
        "_archive_messages(text[], bigint[])",
        "select pgflow._archive_messages(array_fill(%(queue)s::text, array[cardinality(%(ids)s::bigint[])]),"
        " %(ids)s)",
        lambda *_: VOID,
    ),
    Call(
        "set_vt_batch(text, bigint[], integer[])",
        "select msg_id from pgflow.set_vt_batch(%(queue)s, %(ids)s,"
        " array_fill(0, array[cardinality(%(ids)s::bigint[])]))",
        lambda *_: [],
    ),
    Call(
        "set_vt_batch(text, bigint[], integer[])",
        "select msg_id from pgflow.set_vt_batch(upper(%(queue)s), %(ids)s,"
        " array_fill(3600, array[cardinality(%(ids)s::bigint[])]))",
        lambda *_: [],
    ),
    Call(
        "_refuse_batch(text, bigint[], uuid, text, jsonb, integer)",
        "select pgflow._refuse_batch(%(queue)s, %(ids)s, null, 'doubtful', '[]', 0) ->> 'outcome'",
        lambda *_: ["fatal"],
    ),
    Call(
        "_free_messages(text, bigint[])",
        "select unnest(m.free) from pgflow._free_messages(%(queue)s, %(ids)s) m order by 1",
        lambda active, _: active,
    ),
    Call(
        "_judge_messages(text, text, bigint[], bigint[])",
        "select verdict from pgflow._judge_messages(%(queue)s, %(flow)s, %(ids)s, '{}')",
        lambda _, ids: ["other_protocol"] * len(ids),
    ),
    Call(
        "_judge_messages(text, text, bigint[], bigint[])",
        "select verdict from pgflow._judge_messages(%(queue)s, 'plain', %(ids)s, %(ids)s)",
        lambda _, ids: ["other_protocol"] * len(ids),
    ),
    Call(
        "_claim_messages(text, text, bigint[], uuid)",
        "select unnest(m.claimed) from pgflow._claim_messages(%(queue)s, %(flow)s, %(ids)s, %(worker)s) m",
        lambda *_: [],
    ),
)


def test_every_function_that_the_inventory_says_is_called_here() -> None:
    assert {call.entry for call in ON_RUNS + ON_MESSAGES} == {
        writer.name for writer in INVENTORY if writer.test == DIRECT
    }


def _check(world: World, call: Call, named: dict[str, object], returns: object) -> None:
    if returns != "PF005":
        assert world.values(call.query, named) == returns
        return
    error = world.error(call.query, named)
    assert error.sqlstate == "PF005"
    assert error.diag.message_primary == f"run {named['run']} does not speak protocol 1"
    assert error.diag.message_hint == (
        "Nothing was changed. Its tasks are claimed and settled by claim_task_v2()."
    )


@pytest.mark.parametrize("call", ON_RUNS + ON_MESSAGES, ids=lambda call: call.query[14:60])
def test_a_direct_call_changes_nothing_of_protocol_2(world: World, call: Call) -> None:
    with world.unchanged():
        for named, returns in _cases(world, call):
            _check(world, call, named, returns)


def _cases(world: World, call: Call) -> Iterator[tuple[dict[str, object], object]]:
    """Arguments, and what the call returns with them: each run and step, or each queue."""
    if call in ON_RUNS:
        for run in world.runs.values():
            for step in ("a", "b"):
                yield {"run": run, "step": step, "flow": world.flow}, call.returns
        return
    tasks = world.tasks()
    for queue in {task["queue_name"] for task in tasks}:
        ids = [task["message_id"] for task in tasks if task["queue_name"] == queue]
        active = [msg_id for msg_id in world.session.messages(queue) if msg_id in ids]
        assert active, "no message of protocol 2 is left in the queue to be touched"
        named = {"queue": queue, "ids": ids, "flow": world.flow, "worker": WORKER_OF_1}
        yield named, call.returns(active, ids)


@pytest.mark.parametrize(
    ("counters", "function", "returned"),
    [
        ("remaining_deps = 0", "start_ready_steps", ""),
        ("remaining_deps = 0, initial_tasks = 0", "cascade_complete_taskless_steps", 0),
    ],
)
def test_a_step_that_protocol_1_would_call_ready_is_left_alone(
    world: World, counters: str, function: str, returned: object
) -> None:
    # Protocol 2 does not count dependencies down, so by its own calls no step ever looks ready.
    world.session.execute(f"update pgflow.step_states set {counters} where status = 'created'")
    with world.unchanged():
        for run in world.runs.values():
            assert world.values(f"select pgflow.{function}(%(run)s)", {"run": run}) == [returned]
    # Of protocol 1 it is.
    before = world.session.everything()
    world.values(f"select pgflow.{function}(%(run)s)", {"run": world.plain["queued"]})
    assert world.session.everything() != before
