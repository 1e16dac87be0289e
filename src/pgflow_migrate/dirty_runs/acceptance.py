"""What the contract promises, sentence by sentence, and the tests that show it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Promise:
    """A sentence that a reviewer can check.

    Attributes:
        topic: contract, isolation, reconciliation, reporting or commands.
        text: the sentence.
        tests: file::function, below tests/dirty_runs/.
    """

    topic: str
    text: str
    tests: tuple[str, ...]


_CONTRACT = (
    Promise(
        "contract",
        "Every enabled transition is in the table, with a test of its own; every outcome that SQL can "
        "give is there.",
        (
            "test_contract.py::test_every_transition_is_proved_by_a_test_of_its_own",
            "test_contract.py"
            "::test_every_outcome_that_a_function_can_have_is_in_the_contract_and_the_other_way_round",
        ),
    ),
    Promise(
        "contract",
        "Calls that meet end as the table says, in either order, also when the first rolls back; the "
        "table is complete.",
        (
            "races/test_contention.py::test_the_second_call_comes_after_the_first",
            "races/test_contention.py::test_the_second_call_is_alone_when_the_first_is_rolled_back",
            "races/test_contention_is_complete.py"
            "::test_every_pair_whose_order_matters_is_in_the_table_in_both_orders_or_left_out_with_a_reason",
        ),
    ),
    Promise(
        "contract",
        "Random sequences of legal and illegal calls never differ from a small model of the contract.",
        ("test_model_1.py::*", "test_model_2.py::*"),
    ),
    Promise(
        "contract",
        "Every limit holds below, at and above its bound, on the rows and bytes that are really read.",
        ("test_limits.py::*", "test_limits_of_work.py::*"),
    ),
    Promise(
        "contract",
        "A run goes from its start, which dispatches A, to its output in both queue modes.",
        (
            "transitions/test_start.py::test_a_start_makes_every_row_of_the_run_and_dispatches_a",
            "transitions/test_reconcile.py::test_a_run_goes_from_its_start_to_its_output_in_committed_chunks",
        ),
    ),
    Promise(
        "contract",
        "While work is pending, waits or is in attention nothing is claimed; who holds a claim may still "
        "settle it.",
        (
            "transitions/test_claim.py::test_pending_work_blocks_claims_of_tasks_that_are_queued",
            "transitions/test_claim.py::test_a_back_off_blocks_claims_also_when_it_is_over",
            "transitions/test_claim.py::test_attention_blocks_claims_and_says_why",
            "transitions/test_settle.py"
            "::test_a_success_of_pending_work_adds_its_request_and_keeps_the_date_of_the_first",
            "transitions/test_settle.py::test_a_success_leaves_back_off_as_it_is_and_adds_its_request",
            "transitions/test_settle.py::test_a_success_leaves_attention_as_it_is",
        ),
    ),
    Promise(
        "contract",
        "After the takeover that is allowed a person is asked; nothing more is claimed, history and "
        "messages stay.",
        (
            "transitions/test_recover.py::test_the_last_allowed_claim_stays_and_the_run_asks_for_attention",
            "transitions/test_claim.py"
            "::test_a_third_claim_is_blocked_even_if_somebody_has_queued_the_task_again",
            "test_limits.py::test_a_task_has_two_claims_and_no_third",
        ),
    ),
    Promise(
        "contract",
        "Claims and recoveries of more than one message are rejected before anything is expanded, looked "
        "up or written; "
        "equal ids are more than one.",
        (
            "transitions/test_claim.py::test_more_than_one_message_is_rejected_before_anything_is_read",
            "transitions/test_recover.py::test_more_than_one_message_is_rejected_before_anything_is_read",
        ),
    ),
    Promise(
        "contract",
        "A shape or policy outside the envelope is rejected before any run or message exists; SQL and "
        "Python agree on it.",
        (
            "transitions/test_start.py::test_a_definition_outside_the_envelope_is_rejected",
            "isolation/test_envelope.py::*",
        ),
    ),
    Promise(
        "contract",
        "Claims, handler failures and lost executors are told apart; a claim keeps the policy that it was "
        "made under.",
        (
            "transitions/test_claim.py::test_a_takeover_is_a_second_claim_and_the_first_stays_as_history",
            "transitions/test_settle.py::test_counters_of_protocol_1_are_never_used",
        ),
    ),
    Promise(
        "contract",
        "JSON is equal as jsonb is: key order never matters; 0, false, the empty text and null are "
        "results of their own.",
        (
            "transitions/test_settle.py::test_equal_json_is_the_same_result",
            "transitions/test_settle.py::test_zero_false_empty_and_null_are_results_of_their_own",
            "test_canonical_json.py::*",
        ),
    ),
    Promise(
        "contract",
        "The first settlement after a lease is over counts, unless the revocation came first.",
        (
            "transitions/test_settle.py"
            "::test_the_first_settlement_is_accepted_after_the_lease_when_it_comes_before_the_revocation",
            "transitions/test_settle.py"
            "::test_the_first_settlement_is_stale_when_the_revocation_came_before_it",
        ),
    ),
    Promise(
        "contract",
        "Events are hints: one that fails undoes nothing.",
        (
            "transitions/test_settle.py::test_events_that_cannot_be_sent_leave_a_settlement_accepted",
            "transitions/test_reconcile.py::test_events_that_cannot_be_sent_do_not_fail_a_chunk",
        ),
    ),
    Promise(
        "contract",
        "What is deferred, and where protocol 2 is not to be used, is said.",
        ("test_contract.py::test_the_contract_says_what_it_is_not",),
    ),
)

_ISOLATION = (
    Promise(
        "isolation",
        "Every run of protocol 2 has exactly one stable work row; runs of protocol 1 need none.",
        (
            "isolation/test_identity.py::test_a_run_of_protocol_2_has_its_work_row",
            "isolation/test_existing_runs.py::test_runs_of_before_stay_of_protocol_1_without_work_rows",
            "test_schema.py::*",
        ),
    ),
    Promise(
        "isolation",
        "The database itself keeps generations in order and from wrapping, history and outputs bounded, "
        "evidence as it is.",
        ("test_guards.py::*", "test_freeze.py::*"),
    ),
    Promise(
        "isolation",
        "Guards hold for every role, and ask of none for more rights than it had.",
        ("isolation/test_rights.py::*",),
    ),
    Promise(
        "isolation",
        "Ownership is the claim's token, never the worker's id; message ids are exact decimal strings.",
        (
            "transitions/test_claim.py::test_a_token_that_is_used_elsewhere_is_a_conflict",
            "races/test_other_races.py::test_one_token_on_two_runs_is_of_the_run_that_came_first",
            "transitions/test_claim.py::test_ids_beyond_what_json_readers_hold_are_told_as_text",
        ),
    ),
    Promise(
        "isolation",
        "Both protocols work side by side on one queue, and on one run's id, without touching each other.",
        ("races/test_other_races.py::*",),
    ),
    Promise(
        "isolation",
        "A start and a structural change or deletion have one safe outcome, whoever comes first, also by "
        "hand.",
        (
            "races/test_contention.py::test_the_second_call_comes_after_the_first",
            "races/test_other_races.py::test_a_change_by_hand_waits_for_a_start_and_is_refused",
            "races/test_other_races.py::test_a_start_waits_for_a_change_by_hand_and_sees_it",
            "races/test_other_races.py::test_a_recompilation_waits_for_a_start_and_is_refused",
        ),
    ),
    Promise(
        "isolation",
        "Every writer is in the inventory, which a look at the catalogue confirms, with a guard and a test.",
        (
            "isolation/test_inventory.py::test_functions_that_can_write_are_those_of_the_inventory",
            "isolation/test_inventory.py::test_a_function_that_writes_and_is_not_in_the_inventory_is_found",
        ),
    ),
    Promise(
        "isolation",
        "Callbacks, claims, recovery, helpers called directly and pruning of protocol 1 change no task or "
        "message of "
        "protocol 2.",
        (
            "isolation/test_direct_calls.py::test_a_direct_call_changes_nothing_of_protocol_2",
            "isolation/test_claims.py::test_messages_of_protocol_2_are_left_as_read",
            "isolation/test_recovery.py::test_a_task_of_protocol_2_does_not_stall",
            "isolation/test_pruning.py::test_pruning_leaves_everything_of_protocol_2",
        ),
    ),
    Promise(
        "isolation",
        "Protocol 2 refuses runs of protocol 1.",
        (
            "isolation/test_wrong_protocol.py::test_an_entry_of_protocol_2_changes_nothing_of_protocol_1",
            "isolation/test_wrong_protocol.py::test_an_internal_function_of_protocol_2_refuses_other_runs",
        ),
    ),
    Promise(
        "isolation",
        "Protocol, queue, message and address of a run or task never change; settled claims and evidence "
        "never do.",
        (
            "isolation/test_identity.py::test_the_identity_of_a_run_is_final",
            "isolation/test_identity.py::test_the_address_of_a_task_is_final",
            "isolation/test_identity.py::test_a_claim_changes_only_by_its_end",
        ),
    ),
    Promise(
        "isolation",
        "Deletion, recompilation and changes of definition or route fail before any message is removed, "
        "while a run is "
        "live, pending, in attention or kept for replays; afterwards they work.",
        (
            "isolation/test_deletion.py::test_a_held_flow_is_not_deleted",
            "isolation/test_deletion.py::test_a_released_flow_goes_with_claims_work_and_queues",
            "isolation/test_definitions.py::test_a_held_definition_is_frozen",
            "isolation/test_definitions.py::test_compilation_does_not_touch_a_held_flow",
        ),
    ),
    Promise(
        "isolation",
        "A settlement is replayed after later claims and after the end of its run.",
        (
            "transitions/test_settle.py::test_a_result_is_replayed_whatever_came_after",
            "transitions/test_settle.py::test_a_result_is_replayed_after_its_run_has_failed",
        ),
    ),
    Promise(
        "isolation",
        "maybe_complete_run() completes started runs only: a failed run of protocol 1 never becomes "
        "completed.",
        (
            "isolation/test_completion.py::test_a_failed_run_is_never_completed",
            "isolation/test_completion.py::test_ordinary_completion_is_as_before",
        ),
    ),
)

_RECONCILIATION = (
    Promise(
        "reconciliation",
        "A settlement and a later chunk make one task and one message of B, with its input, queue and "
        "delay, and counters that the rows themselves say.",
        (
            "transitions/test_reconcile.py::test_a_dispatch_commits_task_message_and_state_and_stays_pending",
            "transitions/test_reconcile.py::test_counters_are_what_the_rows_say_and_not_what_was_counted",
            "transitions/test_claim.py::test_b_gets_the_outputs_of_its_dependencies",
        ),
    ),
    Promise(
        "reconciliation",
        "A dispatch that rolls back leaves neither task nor message nor state; its replay has one effect.",
        (
            "transitions/test_reconcile.py"
            "::test_a_dispatch_that_rolls_back_leaves_nothing_and_its_replay_has_one_effect",
        ),
    ),
    Promise(
        "reconciliation",
        "A processor that is gone after a committed dispatch is followed by another, which finds the "
        "fixed point; processed stays behind until then.",
        (
            "transitions/test_reconcile.py"
            "::test_a_processor_that_goes_after_a_dispatch_is_followed_by_another",
            "crashes/test_chunks.py::test_a_processor_that_is_gone_after_its_commit_is_not_missed",
        ),
    ),
    Promise(
        "reconciliation",
        "A processor that is killed between any two statements of a chunk, at any write or before its "
        "commit leaves nothing; another connection reaches the same fixed point.",
        (
            "crashes/test_chunks.py"
            "::test_processors_that_are_killed_between_any_two_statements_leave_nothing_and_another_goes_on",
            "crashes/test_chunks.py"
            "::test_a_processor_that_is_killed_at_a_write_leaves_nothing_and_another_goes_on",
            "crashes/test_chunks.py::test_a_processor_that_is_killed_before_its_commit_leaves_nothing",
        ),
    ),
    Promise(
        "reconciliation",
        "Between dispatch and the fixed point B cannot be claimed, with its message in hand neither; "
        "after it, once. The start delay counts from the dispatch.",
        (
            "transitions/test_reconcile.py::test_a_fixed_point_is_processed_and_only_then_b_may_be_claimed",
            "transitions/test_reconcile.py"
            "::test_a_message_that_was_read_before_the_clean_commit_gives_no_claim",
            "test_reporter.py::test_an_executor_does_not_do_b_between_its_dispatch_and_the_fixed_point",
            "transitions/test_reconcile.py"
            "::test_a_start_delay_counts_from_the_dispatch_and_clean_does_not_shift_it",
            "transitions/test_claim.py"
            "::test_a_start_delay_blocks_until_it_is_over_also_with_a_visible_message",
        ),
    ),
    Promise(
        "reconciliation",
        "Rules that run again on processed state change nothing.",
        ("transitions/test_reconcile.py::test_rules_that_run_again_on_processed_state_change_nothing",),
    ),
    Promise(
        "reconciliation",
        "A settlement before, after or beside a chunk leaves its generation pending or processed: no "
        "request is lost.",
        (
            "transitions/test_reconcile.py"
            "::test_a_settlement_before_the_processor_is_in_the_generation_that_it_captures",
            "transitions/test_reconcile.py::test_a_settlement_after_the_processor_is_left_pending",
            "transitions/test_reconcile.py::test_a_settlement_that_meets_an_open_chunk_is_left_pending",
            "transitions/test_reconcile.py::test_requests_between_two_chunks_are_not_lost",
        ),
    ),
    Promise(
        "reconciliation",
        "Two processors never dispatch twice; a locked or poisoned run holds up no other; errors are "
        "kept although their chunk is rolled back.",
        (
            "transitions/test_reconcile.py::test_two_processors_of_one_run_never_dispatch_twice",
            "races/test_other_races.py"
            "::test_two_processors_at_once_dispatch_and_clean_each_of_many_runs_once",
            "races/test_other_races.py::test_processors_take_a_run_each_and_pass_over_one_that_is_held",
            "transitions/test_reconcile.py::test_a_locked_run_lets_another_go_on",
            "test_reporter.py::test_an_executor_passes_over_a_run_that_somebody_has_locked",
            "transitions/test_reconcile.py::test_a_poisoned_run_lets_another_go_on",
            "transitions/test_reconcile.py::test_a_failed_chunk_leaves_the_graph_and_records_its_error",
            "transitions/test_reconcile.py::test_errors_are_committed_although_the_chunk_is_rolled_back",
            "transitions/test_reconcile.py::test_earlier_chunks_stay_when_a_later_one_fails",
        ),
    ),
    Promise(
        "reconciliation",
        "Back-off doubles and outlasts requests; attention is never cleared by itself, and messages stay.",
        (
            "transitions/test_reconcile.py::test_a_back_off_doubles_and_progress_ends_it",
            "transitions/test_reconcile.py::test_a_request_while_a_chunk_waits_keeps_its_back_off",
            "transitions/test_reconcile.py::test_the_fifth_failure_in_a_row_asks_for_attention",
            "test_guards.py::test_attention_is_cleared_by_no_update",
        ),
    ),
    Promise(
        "reconciliation",
        "B's accepted result outlives its processor; a run is finalised once, with the leaf's output; "
        "runs that failed, are in attention or of another protocol are neither finalised nor "
        "dispatched.",
        (
            "transitions/test_reconcile.py::test_a_result_survives_the_loss_of_the_processor",
            "transitions/test_reconcile.py::test_a_run_whose_steps_are_over_is_finalised_once",
            "transitions/test_reconcile.py::test_a_failed_run_is_neither_dispatched_nor_finalised",
            "transitions/test_reconcile.py::test_the_fifth_failure_in_a_row_asks_for_attention",
            "transitions/test_reconcile.py::test_what_is_not_there_or_not_of_this_protocol_is_told",
        ),
    ),
    Promise(
        "reconciliation",
        "A call is at most one run and one chunk in a transaction.",
        (
            "transitions/test_reconcile.py"
            "::test_a_second_chunk_in_one_transaction_is_rejected_whichever_run_it_is_for",
        ),
    ),
    Promise(
        "reconciliation",
        "A thousand runs, two workers, two processors, killed at random, a poisoned and a locked run "
        "among them: all others end, none doubled, no message left, no generation lost.",
        ("stress/test_thousand_runs.py::test_a_thousand_runs_end_and_none_is_doubled_or_lost",),
    ),
    Promise(
        "reconciliation",
        "A call costs the same, in rows and pages, beside 1,000 other runs and 10,000, as evidence 100,000.",
        ("stress/test_growth.py::test_a_call_costs_the_same_whether_others_are_few_or_very_many",),
    ),
)

_REPORTING = (
    Promise(
        "reporting",
        "A report that never settles is unconfirmed at the deadline, and heard when it settles late.",
        (
            "test_reporter.py::test_the_bounds_are_the_contracts",
            "test_reporter.py"
            "::test_a_report_that_never_settles_is_unconfirmed_at_the_deadline_and_heard_when_it_does",
            "test_reporter.py::test_rounds_overlap_without_a_second_settlement",
            "test_reporter.py::test_a_late_answer_ends_the_round_that_is_under_way",
        ),
    ),
    Promise(
        "reporting",
        "A report that fails after a real commit is confirmed by its replay; definite answers are not "
        "asked for again.",
        (
            "test_reporter.py::test_a_report_that_fails_after_a_real_commit_is_confirmed_by_its_replay",
            "test_reporter.py"
            "::test_attempts_that_all_fail_after_a_commit_leave_it_unconfirmed_and_one_settlement",
            "test_reporter.py::test_definite_answers_are_not_asked_for_again",
            "test_reporter.py::test_an_executor_does_a_whole_run_with_a_handler_call_a_step",
        ),
    ),
    Promise(
        "reporting",
        "A shutdown ends a round in flight, or between attempts, as unconfirmed.",
        (
            "test_reporter.py::test_a_shutdown_ends_a_round_in_flight_and_what_comes_after_is_heard",
            "test_reporter.py::test_a_shutdown_ends_the_wait_between_attempts",
        ),
    ),
)

_COMMANDS = (
    Promise(
        "commands",
        "Contract, inventory, status and one chunk of reconciliation are commands, as table and JSON, with "
        "exit codes.",
        ("test_command.py::*",),
    ),
)

PROMISES: tuple[Promise, ...] = _CONTRACT + _ISOLATION + _RECONCILIATION + _REPORTING + _COMMANDS
