"""The frozen contract of the bounded A → B protocol, as data: docs/dirty-runs.md is rendered from it."""

from __future__ import annotations

from dataclasses import dataclass

from pgflow_migrate.dirty_runs.contention import CONTENTIONS, SITUATIONS, Contention
from pgflow_migrate.dirty_runs.decisions import DECISIONS, DEFERRED, NO_GO
from pgflow_migrate.dirty_runs.limits import CONTRACT_VERSION, LIMITS, PROTOCOL_VERSION, Limit

__all__ = [
    "CONTENTIONS",
    "CONTRACT_VERSION",
    "DECISIONS",
    "DEFERRED",
    "LIMITS",
    "NO_GO",
    "PROTOCOL_VERSION",
    "SITUATIONS",
    "TRANSITIONS",
    "Contention",
    "Limit",
    "Transition",
]


@dataclass(frozen=True)
class Transition:
    """One thing that may happen to a run of protocol 2.

    Attributes:
        name: unique.
        call: the SQL function that makes it happen.
        preconditions: what must hold under the locks, in the order in which it is asked.
        locks: in order.
        changes: what is different when its transaction has committed.
        response: the outcomes that the call may have; the first is the transition itself.
        replay: what makes a repeated call the same one, and what that gets.
        test: the test that proves it: file::function.
    """

    name: str
    call: str
    preconditions: tuple[str, ...]
    locks: tuple[str, ...]
    changes: tuple[str, ...]
    response: tuple[str, ...]
    replay: str
    test: str


TRANSITIONS: tuple[Transition, ...] = (
    Transition(
        "start",
        "start_flow_v2(flow_slug, input, run_id)",
        (
            "input is not NULL and within input_bytes; the transaction is READ COMMITTED",
            "run_id is not taken",
            "the definition is inside the envelope: 2 single steps, 1 edge, no condition, when_exhausted "
            "fail, "
            "effective max_attempts 1, timeout, start delay and definition_bytes within their limits",
            "every queue of the route is whole and of no other flow",
        ),
        ("flow (advisory, exclusive)", "flow, steps and edge (written to, unchanged)", "new rows only"),
        (
            "the run, and its work row, which alone says that it speaks protocol 2: the SHA-256 of its "
            "canonical definition, clean, generations 0",
            "states of both steps; A started",
            "A's task and its message, visible after A's start delay",
        ),
        ("started", "conflict", "rejected"),
        "run_id, flow and canonical input: started, replayed. Another flow or input: conflict.",
        "transitions/test_start.py::test_a_start_makes_every_row_of_the_run_and_dispatches_a",
    ),
    Transition(
        "claim",
        "claim_task_v2(run_id, step_slug, task_index, queue_name, msg_ids, worker_id, claim_id)",
        (
            "at most one message id, asked before anything is read",
            "the run is started and of protocol 2",
            "step and task exist and are not over; queue and message, where given, are the task's",
            "work is clean",
            "the task is queued",
            "the definition is that of the start; the start delay is over",
            "fewer than claims_per_task claims; the message is in its queue",
        ),
        ("run", "work", "step state", "task", "message"),
        (
            "a claim: token, address, message, worker, policy, lease of timeout + lease_grace_seconds",
            "the task is started and points at it; attempts_count stays 0",
            "the message is invisible until the lease is over",
        ),
        (
            "claimed",
            "held",
            "blocked",
            "stale",
            "terminal",
            "conflict",
            "unknown",
            "wrong_protocol",
            "rejected",
        ),
        "claim_id, address and worker: the same claim while it is active, else stale. Another address or "
        "worker: "
        "conflict.",
        "transitions/test_claim.py::test_a_claim_starts_the_task_and_hides_its_message",
    ),
    Transition(
        "recover",
        "recover_task_v2(run_id, step_slug, task_index, claim_id, msg_ids)",
        (
            "at most one message id, asked before anything is read",
            "the claim is of that task, and active",
            "its lease is over, by the clock, under the run's lock",
            "work is not in attention",
            "it is not the task's last allowed claim; the message is in its queue",
        ),
        ("run", "work", "step state", "task", "message"),
        (
            "the claim is revoked (lease_lost)",
            "the task is queued and points at no claim; its message is visible",
        ),
        (
            "recovered",
            "not_expired",
            "settled",
            "attention",
            "terminal",
            "stale",
            "unknown",
            "wrong_protocol",
            "rejected",
        ),
        "claim_id: recovered, replayed; a later claim on the task is not touched.",
        "transitions/test_recover.py::test_an_expired_claim_is_revoked_and_its_task_queued_again",
    ),
    Transition(
        "attention at the claim limit",
        "recover_task_v2(run_id, step_slug, task_index, claim_id, msg_ids)",
        (
            "as recover, but the claim is number claims_per_task (claims_exhausted), or its message is not "
            "in the "
            "queue (message_missing)",
        ),
        ("run", "work", "step state", "task", "message"),
        (
            "work is in attention, for a person: nothing here clears it",
            "the claim stays active: its result is still accepted",
            "no further claim; history and messages stay",
        ),
        ("attention",),
        "attention again, with the same reason.",
        "transitions/test_recover.py::test_the_last_allowed_claim_stays_and_the_run_asks_for_attention",
    ),
    Transition(
        "success",
        "complete_claim_v2(claim_id, output)",
        (
            "the claim is active: run, step and task are started, the task points at it; asked before the "
            "output is "
            "looked at",
            "a lease that is over is no objection, as long as the claim is not revoked",
            "the canonical output is within result_bytes",
        ),
        ("run", "work", "step state", "task", "message"),
        (
            "the claim is settled: succeeded, completed, SHA-256 and bytes of the canonical output",
            "task and step are completed, with the canonical output",
            "requested_generation is one more; clean work is pending; retry_wait and attention stay",
            "the message is archived",
            "B is not dispatched, the run is not finished: that is reconciliation's",
        ),
        ("accepted", "conflict", "stale", "terminal", "rejected"),
        "claim_id, kind and canonical output: accepted with the first disposition, replayed, whatever came "
        "after. "
        "Anything else: conflict.",
        "transitions/test_settle.py::test_a_success_ends_task_and_step_and_requests_orchestration",
    ),
    Transition(
        "exhausted failure",
        "fail_claim_v2(claim_id, error_message)",
        ("as success, but for the size: a longer text is cut to error_bytes",),
        ("run", "work", "step state", "tasks", "messages"),
        (
            "the claim is settled: failed, failed, SHA-256 and bytes of the whole text",
            "task, step and run are failed, in the same transaction, with no processor",
            "every other unfinished task is cancelled, every other active claim revoked (run_failed)",
            "every message of the run is archived",
            "requested_generation is one more and processed; work is clean, or stays in attention",
        ),
        ("accepted", "conflict", "stale", "terminal", "rejected"),
        "claim_id, kind and text: accepted, failed, replayed. Anything else: conflict.",
        "transitions/test_settle.py::test_a_failure_ends_the_run_at_once_without_a_processor",
    ),
    Transition(
        "oversized result",
        "complete_claim_v2(claim_id, output)",
        ("as success, but the canonical output is larger than result_bytes",),
        ("run", "work", "step state", "tasks", "messages"),
        (
            "the claim is settled: succeeded, oversized, SHA-256 and bytes of the output, which is not kept",
            "everything else as with an exhausted failure; the handler is not run again",
        ),
        ("accepted", "conflict", "stale", "terminal", "rejected"),
        "claim_id, kind and canonical output: accepted, oversized, replayed.",
        "transitions/test_settle.py::test_an_oversized_result_fails_the_run_and_is_not_kept",
    ),
    Transition(
        "dispatch",
        "reconcile_one_run(run_id)",
        (
            "the first chunk of its transaction; the run is not locked by anybody",
            "work is pending, or in retry_wait and due",
            "the run is started, its definition that of the start, its rows within examined_rows_per_chunk",
            "a step is created, has no task, and all its dependencies are completed, by their own rows",
        ),
        ("run (never waited for)", "work", "step states", "tasks", "queue"),
        (
            "the step is started, with one task and one message, visible after its start delay from now",
            "remaining_deps and remaining_steps are what the rows say",
            "work stays pending: processed_generation is as before",
        ),
        (
            "dispatched",
            "idle",
            "busy",
            "waiting",
            "attention",
            "failed",
            "unknown",
            "wrong_protocol",
            "rejected",
        ),
        "The rows: a step that has started is not dispatched again.",
        "transitions/test_reconcile.py::test_a_dispatch_commits_task_message_and_state_and_stays_pending",
    ),
    Transition(
        "clean",
        "reconcile_one_run(run_id)",
        ("as dispatch, but no step is ready and not every step is completed; or the run is over",),
        ("run (never waited for)", "work", "step states", "tasks"),
        (
            "processed_generation is the requested_generation that was read under the lock",
            "work is clean: from now on the task may be claimed",
        ),
        ("clean",),
        "Clean work: idle.",
        "transitions/test_reconcile.py::test_a_fixed_point_is_processed_and_only_then_b_may_be_claimed",
    ),
    Transition(
        "finalise",
        "reconcile_one_run(run_id)",
        ("as dispatch, but every step is completed; the run's output is within run_output_bytes",),
        ("run (never waited for)", "work", "step states", "tasks"),
        (
            "the run is completed, its output the leaf's, remaining_steps 0",
            "work stays pending; the next chunk marks it clean",
        ),
        ("finalized",),
        "A run that is over is not finalised again.",
        "transitions/test_reconcile.py::test_a_run_whose_steps_are_over_is_finalised_once",
    ),
    Transition(
        "chunk error",
        "reconcile_one_run(run_id)",
        ("a chunk raises anything but a cancellation",),
        ("run (never waited for)", "work"),
        (
            "the chunk's changes are rolled back, earlier chunks stay",
            "SQLSTATE, error (cut to error_bytes), failure_count and next_attempt_at are recorded in the "
            "same "
            "transaction; work is in retry_wait for backoff_seconds times 2^(failures before)",
        ),
        ("failed",),
        "The next chunk, once it is due. Progress sets failure_count back to 0.",
        "transitions/test_reconcile.py::test_a_failed_chunk_leaves_the_graph_and_records_its_error",
    ),
    Transition(
        "attention after failures",
        "reconcile_one_run(run_id)",
        ("as chunk error, for the attention_failures-th time in a row",),
        ("run (never waited for)", "work"),
        ("work is in attention (failures_exhausted), messages stay, nothing clears it",),
        ("failed",),
        "attention.",
        "transitions/test_reconcile.py::test_the_fifth_failure_in_a_row_asks_for_attention",
    ),
    Transition(
        "request",
        "request_reconciliation_v2(run_id)",
        ("the run is started and of protocol 2",),
        ("run", "work"),
        ("requested_generation is one more; clean work is pending; retry_wait and attention stay",),
        ("requested", "terminal", "unknown", "wrong_protocol"),
        "None: each call is a request of its own, and the rules give the same rows.",
        "transitions/test_reconcile.py::test_rules_that_run_again_on_processed_state_change_nothing",
    ),
)
