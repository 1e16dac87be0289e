"""Everything that can write to tasks, steps, runs, work, claims or queues, and what keeps protocols apart.

A test finds writers in the catalogue by itself and holds this list against them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "entry point",
    "helper",
    "trigger",
    "cron",
    "shipped helper",
    "documented helper",
    "v2 entry",
    "v2 internal",
]


@dataclass(frozen=True)
class Writer:
    """Something that can write, or that has a dynamic statement.

    Attributes:
        name: a function of schema pgflow with its arguments' types; ``<trigger or constraint> on <table>``; a
            cron job; the path of a file.
        kind: ``entry point``, called by users and workers of protocol 1, or of both; ``helper``, called by
            those; ``trigger``, also the action of a foreign key; ``cron``, a job; ``shipped helper``, a file
            that owners install; ``documented helper``, the same of pgflow's documentation; ``v2 entry`` and
            ``v2 internal``, of protocol 2.
        writes: what it changes.
        guard: what keeps it off runs of protocol 2; of what belongs to protocol 2, off other runs.
        test: ``<file in tests/dirty_runs>::<function>``, which shows the guard.
    """

    name: str
    kind: Kind
    writes: str
    guard: str
    test: str


PF005 = "rejects: PF005, before anything is changed"
FILTERS = "filters: rows of protocol 2 are not looked at"
WRONG = "takes only protocol 2: outcome wrong_protocol"
FREEZE = "refuses: 55000 by the triggers protocol_2_freeze, while a run of protocol 2 holds the flow"

DIRECT = "isolation/test_direct_calls.py::test_a_direct_call_changes_nothing_of_protocol_2"
INTERNAL = "isolation/test_wrong_protocol.py::test_an_internal_function_of_protocol_2_refuses_other_runs"
ENTRY = "isolation/test_wrong_protocol.py::test_an_entry_of_protocol_2_changes_nothing_of_protocol_1"
WORKERS = "isolation/test_workers.py::test_maintenance_of_workers_changes_no_row_of_protocol_2"

INVENTORY: tuple[Writer, ...] = (
    # -- protocol 1: entry points ----------------------------------------------------------------
    Writer(
        "start_flow(text, jsonb, uuid)",
        "entry point",
        "makes a run of protocol 1, its states, first tasks and messages",
        "cannot reach v2: it inserts a run; the id of one that exists is refused (23505)",
        "isolation/test_definitions.py::test_a_start_of_protocol_1_does_not_take_over_a_run",
    ),
    Writer(
        "start_flow_with_states(text, jsonb, uuid)",
        "entry point",
        "as start_flow",
        "cannot reach v2: it calls start_flow",
        "isolation/test_definitions.py::test_a_start_of_protocol_1_does_not_take_over_a_run",
    ),
    Writer(
        "claim_tasks(text, text, bigint[], uuid)",
        "entry point",
        "tasks, visibility, archives of a batch of messages; the pause of a worker function",
        "filters: messages of protocol 2 are left as read, and named in other_protocol",
        "isolation/test_claims.py::test_messages_of_protocol_2_are_left_as_read",
    ),
    Writer(
        "start_tasks(text, bigint[], uuid)",
        "entry point",
        "as claim_tasks",
        "filters: messages of protocol 2 are left as read",
        "isolation/test_claims.py::test_the_plain_claim_leaves_them_too",
    ),
    Writer(
        "complete_task(uuid, text, integer, jsonb)",
        "entry point",
        "task, states, run, further tasks and messages, the archive",
        PF005,
        DIRECT,
    ),
    Writer(
        "fail_task(uuid, text, integer, text)",
        "entry point",
        "task, states, run, visibility, the archive",
        PF005,
        DIRECT,
    ),
    Writer(
        "requeue_stalled_tasks()",
        "entry point",
        "stalled tasks and their messages, of all runs",
        FILTERS,
        "isolation/test_recovery.py::test_a_task_of_protocol_2_does_not_stall",
    ),
    Writer(
        "create_flow(text, integer, integer, integer)",
        "entry point",
        "a flow",
        "cannot reach v2: an existing flow is returned as it is",
        "isolation/test_definitions.py::test_a_definition_that_is_there_is_returned_as_it_is",
    ),
    Writer(
        "add_step(text, text, text[], integer, integer, integer, integer, text, jsonb, jsonb, text, text)",
        "entry point",
        "a step, its dependencies, the flow's queue",
        FREEZE + "; a step that is there is returned as it is",
        "isolation/test_definitions.py::test_a_held_definition_is_frozen",
    ),
    Writer(
        "ensure_flow_compiled(text, jsonb, jsonb)",
        "entry point",
        "a flow, its steps and queue; on a local stack deletes and makes them anew",
        "refuses: 55000 instead of a recompilation; verified and mismatch change nothing",
        "isolation/test_definitions.py::test_compilation_does_not_touch_a_held_flow",
    ),
    Writer(
        "delete_flow_and_data(text)",
        "entry point",
        "deletes a flow, its runs of both protocols, claims, work rows and queues",
        "refuses: 55000 before any message goes, while a run of protocol 2 is live, its work pending or in "
        "attention, a claim active, or evidence retained",
        "isolation/test_deletion.py::test_a_held_flow_is_not_deleted",
    ),
    Writer(
        "mark_worker_stopped(uuid)",
        "entry point",
        "a worker",
        "cannot reach v2: it writes pgflow.workers alone",
        WORKERS,
    ),
    Writer(
        "track_worker_function(text, text)",
        "entry point",
        "a worker function",
        "cannot reach v2: it writes pgflow.worker_functions alone",
        WORKERS,
    ),
    Writer(
        "resume_worker_function(text)",
        "entry point",
        "a worker function",
        "cannot reach v2: it writes pgflow.worker_functions alone",
        WORKERS,
    ),
    Writer(
        "ensure_workers()",
        "entry point",
        "last_invoked_at of worker functions, HTTP requests",
        "cannot reach v2: it writes pgflow.worker_functions alone",
        WORKERS,
    ),
    Writer(
        "cleanup_ensure_workers_logs(integer)",
        "entry point",
        "pg_cron's log",
        "cannot reach v2: it writes cron.job_run_details alone",
        WORKERS,
    ),
    Writer(
        "setup_ensure_workers_cron(text)",
        "entry point",
        "cron jobs",
        "cannot reach v2: it schedules ensure_workers and the clearing of the log",
        WORKERS,
    ),
    Writer(
        "setup_requeue_stalled_tasks_cron(text)",
        "entry point",
        "a cron job",
        "cannot reach v2: it schedules requeue_stalled_tasks, which filters",
        WORKERS,
    ),
    # -- protocol 1: helpers ---------------------------------------------------------------------
    Writer(
        "start_ready_steps(uuid)",
        "helper",
        "states, tasks, messages of ready steps",
        "filters: nothing on a run of protocol 2",
        DIRECT,
    ),
    Writer(
        "cascade_complete_taskless_steps(uuid)",
        "helper",
        "states, the run's counter",
        "filters: 0 steps of a run of protocol 2",
        DIRECT,
    ),
    Writer(
        "cascade_resolve_conditions(uuid)",
        "helper",
        "states, tasks, run, archives",
        "filters: true, nothing judged",
        DIRECT,
    ),
    Writer(
        "_cascade_force_skip_steps(uuid, text, text)",
        "helper",
        "states, tasks, the run's counter, archives",
        PF005,
        DIRECT,
    ),
    Writer(
        "_complete_step_if_last_task(pgflow.step_states, pgflow.steps, jsonb)",
        "helper",
        "states, the run's counter",
        PF005,
        DIRECT,
    ),
    Writer("_end_unfinished_tasks(uuid, text[], text)", "helper", "tasks, archives", PF005, DIRECT),
    Writer(
        "_fail_run_for_exhausted_task(uuid, text, text)",
        "helper",
        "state, run, tasks, archives",
        PF005,
        DIRECT,
    ),
    Writer(
        "_fail_run_for_type_violation(uuid, text, integer, jsonb, text, text)",
        "helper",
        "task, run, state, tasks, archives",
        PF005,
        DIRECT,
    ),
    Writer(
        "_fail_run_for_unmet_condition(uuid, text)",
        "helper",
        "run, state, tasks, archives",
        PF005,
        DIRECT,
    ),
    Writer(
        "_skip_step_for_exhausted_task(uuid, text, text, boolean)",
        "helper",
        "state, run, tasks, archives; what is then ready",
        PF005,
        DIRECT,
    ),
    Writer(
        "_release_dependents_of_skipped(uuid, text[])",
        "helper",
        "counters of states",
        "filters: no dependents of a run of protocol 2",
        DIRECT,
    ),
    Writer(
        "maybe_complete_run(uuid)",
        "helper",
        "the run",
        "filters: started runs of protocol 1 alone are completed",
        "isolation/test_completion.py::test_a_run_of_protocol_2_is_not_completed_by_protocol_1",
    ),
    Writer(
        "_archive_messages(text[], bigint[])",
        "helper",
        "moves messages to archives",
        "filters: messages of protocol 2 stay",
        DIRECT,
    ),
    Writer(
        "_archive_task_message(uuid, text, integer)",
        "helper",
        "moves a message to the archive",
        "filters: messages of protocol 2 stay",
        DIRECT,
    ),
    Writer(
        "set_vt_batch(text, bigint[], integer[])",
        "helper",
        "visibility of messages",
        "filters: messages of protocol 2 are not among the changed",
        DIRECT,
    ),
    Writer(
        "_refuse_batch(text, bigint[], uuid, text, jsonb, integer)",
        "helper",
        "visibility of messages, the pause of a worker function",
        "filters: messages of protocol 2 stay as read",
        DIRECT,
    ),
    Writer(
        "_free_messages(text, bigint[])",
        "helper",
        "nothing: locks messages by a dynamic statement",
        "cannot change: it reads",
        DIRECT,
    ),
    Writer(
        "_judge_messages(text, text, bigint[], bigint[])",
        "helper",
        "nothing: reads messages by a dynamic statement",
        "cannot change: it reads; verdict other_protocol",
        DIRECT,
    ),
    Writer(
        "_claim_messages(text, text, bigint[], uuid)",
        "helper",
        "as claim_tasks",
        "filters: messages of protocol 2 are left as read",
        DIRECT,
    ),
    Writer(
        "_pause_worker_function(uuid, text)",
        "helper",
        "a worker function",
        "cannot reach v2: it writes pgflow.worker_functions alone",
        WORKERS,
    ),
    Writer(
        "_create_flow_from_shape(text, jsonb)",
        "helper",
        "as create_flow and add_step",
        FREEZE,
        "isolation/test_definitions.py::test_a_held_definition_is_frozen",
    ),
    Writer(
        "_provision_queue(text, text)",
        "helper",
        "makes a queue",
        "cannot reach v2: a queue that is there is verified and left",
        DIRECT,
    ),
    # -- triggers and foreign keys ---------------------------------------------------------------
    Writer(
        "protocol_2_freeze on flows",
        "trigger",
        "nothing: a guard",
        FREEZE,
        "isolation/test_definitions.py::test_a_held_definition_is_frozen",
    ),
    Writer(
        "protocol_2_freeze on steps",
        "trigger",
        "nothing: a guard",
        FREEZE,
        "isolation/test_definitions.py::test_a_held_definition_is_frozen",
    ),
    Writer(
        "protocol_2_freeze on deps",
        "trigger",
        "nothing: a guard",
        FREEZE,
        "isolation/test_definitions.py::test_a_held_definition_is_frozen",
    ),
    Writer(
        "protocol_2_identity on runs",
        "trigger",
        "nothing: a guard",
        "rejects: PF006 for another address or input of a run of protocol 2",
        "isolation/test_identity.py::test_the_identity_of_a_run_is_final",
    ),
    Writer(
        "protocol_2_end on runs",
        "trigger",
        "nothing: a guard",
        "rejects: PF006 for a change of a final status of a run of protocol 2, and for an output that is "
        "larger than run_output_bytes",
        "isolation/test_identity.py::test_a_final_status_is_final",
    ),
    Writer(
        "protocol_2_address on step_tasks",
        "trigger",
        "nothing: a guard",
        "rejects: PF006 for another queue, message or address of a task of protocol 2",
        "isolation/test_identity.py::test_the_address_of_a_task_is_final",
    ),
    Writer(
        "work_is_stable on run_work",
        "trigger",
        "nothing: a guard",
        "rejects: PF006 for another identity (protocol, definition, run), for generations that go back or "
        "jump, for clearing attention; 55000 for a deletion before it is safe",
        "isolation/test_identity.py::test_a_work_row_is_stable",
    ),
    Writer(
        "work_is_of_a_new_run on run_work",
        "trigger",
        "nothing: a guard, which locks the run",
        "rejects: PF006 for a run that has begun with protocol 1",
        "isolation/test_identity.py::test_a_run_of_protocol_1_never_becomes_one_of_protocol_2",
    ),
    Writer(
        "work_is_not_truncated on run_work",
        "trigger",
        "nothing: a guard",
        "rejects: PF006",
        "isolation/test_identity.py::test_evidence_is_not_truncated",
    ),
    Writer(
        "run_keeps_its_work on run_work",
        "trigger",
        "nothing: a guard",
        "rejects: PF006 for a deletion without the run's, at commit",
        "isolation/test_identity.py::test_a_run_of_protocol_2_has_its_work_row",
    ),
    Writer(
        "claim_is_evidence on task_claims",
        "trigger",
        "nothing: a guard",
        "rejects: PF006 for a claim on a task that is not eligible, for another identity, for a change of "
        "what is over; 55000 for a deletion before it is safe",
        "isolation/test_identity.py::test_a_claim_is_evidence",
    ),
    Writer(
        "claims_are_not_truncated on task_claims",
        "trigger",
        "nothing: a guard",
        "rejects: PF006",
        "isolation/test_identity.py::test_evidence_is_not_truncated",
    ),
    Writer(
        "step_tasks_last_worker_id_fkey on step_tasks",
        "trigger",
        "last_worker_id, when a worker is deleted",
        "cannot reach v2: its tasks have no last_worker_id, and claims no foreign key to workers",
        WORKERS,
    ),
    # -- cron ------------------------------------------------------------------------------------
    Writer(
        "pgflow_requeue_stalled_tasks",
        "cron",
        "calls requeue_stalled_tasks()",
        FILTERS,
        "isolation/test_recovery.py::test_a_task_of_protocol_2_does_not_stall",
    ),
    Writer(
        "pgflow_ensure_workers",
        "cron",
        "calls ensure_workers()",
        "cannot reach v2: it writes pgflow.worker_functions alone",
        WORKERS,
    ),
    Writer(
        "pgflow_cleanup_logs",
        "cron",
        "calls cleanup_ensure_workers_logs()",
        "cannot reach v2: it writes cron.job_run_details alone",
        WORKERS,
    ),
    # -- helpers that owners install -------------------------------------------------------------
    Writer(
        "helpers/prune_data_older_than.sql",
        "shipped helper",
        "deletes old runs of protocol 1 with states, tasks, messages; old archived messages; dead workers",
        "filters: runs of protocol 2 and all that is theirs stay, archived messages too",
        "isolation/test_pruning.py::test_pruning_leaves_everything_of_protocol_2",
    ),
    Writer(
        "prune_data_older_than(interval)",
        "documented helper",
        "as pgflow's documentation has it: deletes old runs, messages, workers",
        "refuses: 23503 by the foreign key of task_claims, once a run of protocol 2 is old; nothing is "
        "deleted, of protocol 1 neither. Replace it",
        "isolation/test_pruning.py::test_a_helper_that_does_not_know_protocol_2_is_stopped_by_foreign_keys",
    ),
    # -- protocol 2: entries ---------------------------------------------------------------------
    Writer(
        "start_flow_v2(text, jsonb, uuid)",
        "v2 entry",
        "makes a run of protocol 2, its work row, states, the root's task and message",
        "takes only protocol 2: the id of a run of protocol 1 is a conflict",
        ENTRY,
    ),
    Writer(
        "claim_task_v2(uuid, text, integer, text, bigint[], uuid, uuid)",
        "v2 entry",
        "a claim, its task, the message's visibility",
        WRONG,
        ENTRY,
    ),
    Writer(
        "recover_task_v2(uuid, text, integer, uuid, bigint[])",
        "v2 entry",
        "a claim, its task, the message's visibility; or the run's work (attention)",
        WRONG,
        ENTRY,
    ),
    Writer(
        "complete_claim_v2(uuid, jsonb)",
        "v2 entry",
        "claim, task, state, work, the archive; of an oversized result all of the run",
        "takes only protocol 2: it begins with a claim, and only tasks of protocol 2 have any",
        ENTRY,
    ),
    Writer(
        "fail_claim_v2(uuid, text)",
        "v2 entry",
        "claim, task, state, run, work, the archive",
        "takes only protocol 2: it begins with a claim, and only tasks of protocol 2 have any",
        ENTRY,
    ),
    Writer(
        "reconcile_one_run(uuid)",
        "v2 entry",
        "work; one step, task and message; or the run's end",
        WRONG + "; without an id only runs with a work row are candidates",
        ENTRY,
    ),
    Writer("request_reconciliation_v2(uuid)", "v2 entry", "work", WRONG, ENTRY),
    # -- protocol 2: internals -------------------------------------------------------------------
    Writer(
        "_v2_settle(uuid, text, jsonb)",
        "v2 internal",
        "as complete_claim_v2 and fail_claim_v2",
        "takes only protocol 2: it begins with a claim",
        INTERNAL,
    ),
    Writer(
        "_v2_chunk(pgflow.runs)",
        "v2 internal",
        "as reconcile_one_run, without work",
        "takes only protocol 2: PF007, a run of protocol 1 has no definition identity",
        INTERNAL,
    ),
    Writer(
        "_v2_dispatch_step(uuid, text)",
        "v2 internal",
        "state, task, message",
        "takes only protocol 2: PF005 unless the run is a started one of protocol 2",
        INTERNAL,
    ),
    Writer(
        "_v2_fail_run(uuid, text, text)",
        "v2 internal",
        "state, tasks, claims, run, work, archives",
        "takes only protocol 2: PF005 unless the run is a started one of protocol 2",
        INTERNAL,
    ),
    Writer(
        "_v2_hold_definition(text)",
        "v2 internal",
        "rows of a flow, its steps and dependencies, as they are: a new version, no other value",
        "changes no value, of whichever flow",
        INTERNAL,
    ),
    Writer(
        "_v2_request(uuid)",
        "v2 internal",
        "work",
        "takes only protocol 2: no other run has a work row",
        INTERNAL,
    ),
)
