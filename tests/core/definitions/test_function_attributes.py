"""What callers and privileges depend on: signature, result, language, volatility, definer, search path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

NO_PATH, NONE, CRON = 'search_path=""', None, "search_path=pgflow, cron, pg_temp"
RECORD = "SETOF pgflow.step_task_record"
RUN_CALL = "flow_slug text, input jsonb, run_id uuid DEFAULT NULL::uuid"
STEP_CALL = (
    "flow_slug text, step_slug text, deps_slugs text[] DEFAULT '{}'::text[],"
    " max_attempts integer DEFAULT NULL::integer, base_delay integer DEFAULT NULL::integer,"
    " timeout integer DEFAULT NULL::integer, start_delay integer DEFAULT NULL::integer,"
    " step_type text DEFAULT 'single'::text, required_input_pattern jsonb DEFAULT NULL::jsonb,"
    " forbidden_input_pattern jsonb DEFAULT NULL::jsonb, when_unmet text DEFAULT 'skip'::text,"
    " when_exhausted text DEFAULT 'fail'::text"
)
FLOW_CALL = (
    "flow_slug text, max_attempts integer DEFAULT NULL::integer, base_delay integer DEFAULT NULL::integer,"
    " timeout integer DEFAULT NULL::integer"
)
POLL_CALL = (
    "queue_name text, vt integer, qty integer, max_poll_seconds integer DEFAULT 5,"
    " poll_interval_ms integer DEFAULT 100"
)
BATCH_CALL = "queue_name text, msg_ids bigint[], vt_offsets integer[]"
MESSAGES = (
    "TABLE(msg_id bigint, read_ct integer, enqueued_at timestamp with time zone,"
    " vt timestamp with time zone, message jsonb, headers jsonb)"
)
TASK_CALL = "run_id uuid, step_slug text, task_index integer"

# name: arguments, result, language, volatility, security definer, search path
FUNCTIONS: dict[str, tuple[str, str, str, str, bool, str | None]] = {
    "_archive_task_message": (
        "p_run_id uuid, p_step_slug text, p_task_index integer", "void", "sql", "volatile", False, NO_PATH),
    "_cascade_force_skip_steps": (
        "run_id uuid, step_slug text, skip_reason text", "integer", "plpgsql", "volatile", False, NONE),
    "_compare_flow_shapes": ("p_local jsonb, p_db jsonb", "text[]", "plpgsql", "stable", False, NO_PATH),
    "_create_flow_from_shape": (
        "p_flow_slug text, p_shape jsonb", "void", "plpgsql", "volatile", False, NO_PATH),
    "_get_flow_shape": ("p_flow_slug text", "jsonb", "sql", "stable", False, NO_PATH),
    "add_step": (STEP_CALL, "pgflow.steps", "plpgsql", "volatile", False, NO_PATH),
    "calculate_retry_delay": (
        "base_delay numeric, attempts_count integer", "integer", "sql", "immutable", False, NO_PATH),
    "cascade_complete_taskless_steps": ("run_id uuid", "integer", "plpgsql", "volatile", False, NONE),
    "cascade_resolve_conditions": ("run_id uuid", "boolean", "plpgsql", "volatile", False, NO_PATH),
    "cleanup_ensure_workers_logs": (
        "retention_hours integer DEFAULT 24", "TABLE(cron_deleted bigint)", "sql", "volatile", True, CRON),
    "complete_task": (
        f"{TASK_CALL}, output jsonb", "SETOF pgflow.step_tasks", "plpgsql", "volatile", False, NO_PATH),
    "create_flow": (FLOW_CALL, "pgflow.flows", "sql", "volatile", False, NO_PATH),
    "delete_flow_and_data": ("p_flow_slug text", "void", "plpgsql", "volatile", False, NO_PATH),
    "ensure_flow_compiled": ("flow_slug text, shape jsonb", "jsonb", "plpgsql", "volatile", False, NO_PATH),
    "ensure_workers": (
        "", "TABLE(function_name text, invoked boolean, request_id bigint)", "sql", "volatile", False, NONE),
    "fail_task": (
        f"{TASK_CALL}, error_message text", "SETOF pgflow.step_tasks", "plpgsql", "volatile", False, NO_PATH),
    "get_run_with_states": ("run_id uuid", "jsonb", "sql", "volatile", True, NONE),
    "is_local": ("", "boolean", "sql", "stable", False, NO_PATH),
    "is_valid_slug": ("slug text", "boolean", "plpgsql", "immutable", False, NO_PATH),
    "mark_worker_stopped": ("worker_id uuid", "void", "sql", "volatile", False, NONE),
    "maybe_complete_run": ("run_id uuid", "void", "plpgsql", "volatile", False, NO_PATH),
    "poll_for_tasks": (POLL_CALL, RECORD, "plpgsql", "volatile", False, NO_PATH),
    "requeue_stalled_tasks": ("", "integer", "plpgsql", "volatile", True, NO_PATH),
    "set_vt_batch": (
        BATCH_CALL, MESSAGES, "plpgsql", "volatile", False, NONE),
    "setup_ensure_workers_cron": (
        "cron_interval text DEFAULT '1 second'::text", "text", "plpgsql", "volatile", True, CRON),
    "setup_requeue_stalled_tasks_cron": (
        "cron_interval text DEFAULT '15 seconds'::text", "text", "plpgsql", "volatile", True, CRON),
    "start_flow": (RUN_CALL, "SETOF pgflow.runs", "plpgsql", "volatile", False, NO_PATH),
    "start_flow_with_states": (RUN_CALL, "jsonb", "plpgsql", "volatile", True, NONE),
    "start_ready_steps": ("run_id uuid", "void", "plpgsql", "volatile", False, NO_PATH),
    "start_tasks": (
        "flow_slug text, msg_ids bigint[], worker_id uuid", RECORD, "sql", "volatile", False, NO_PATH),
    "track_worker_function": (
        "function_name text, start_mode text DEFAULT 'http'::text", "void", "sql", "volatile", False, NONE),
}  # fmt: skip
OLD_ENSURE = "flow_slug text, shape jsonb, allow_data_loss boolean DEFAULT false"
PARALLEL_SAFE = {"calculate_retry_delay", "is_local"}


@pytest.fixture
def functions(rows: Callable[..., list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The functions of the schema; names are unique."""
    found = rows(
        """
        select proname, pg_get_function_arguments(p.oid) as arguments,
          pg_get_function_result(p.oid) as result, lanname,
          case provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end as volatility,
          prosecdef, array_to_string(proconfig, '; ') as config, proisstrict, proleakproof, procost,
          prokind::text, proparallel::text, provariadic::bigint
        from pg_proc as p join pg_language as l on l.oid = prolang
        where pronamespace = 'pgflow'::regnamespace
        """
    )
    by_name = {str(function["proname"]): function for function in found}
    assert len(by_name) == len(found)
    return by_name


def test_there_are_31_functions(functions: dict[str, dict[str, Any]]) -> None:
    assert sorted(functions) == sorted(FUNCTIONS)
    assert len(FUNCTIONS) == 31


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_its_attributes(functions: dict[str, dict[str, Any]], release: str, name: str) -> None:
    keys = ("arguments", "result", "lanname", "volatility", "prosecdef", "config")
    expected = dict(zip(keys, FUNCTIONS[name], strict=True))
    if name == "ensure_flow_compiled" and release != "core_0_16_0":
        expected["arguments"] = OLD_ENSURE
    assert {key: functions[name][key] for key in keys} == expected


def test_all_are_ordinary_functions_at_default_cost_that_are_called_on_null(
    functions: dict[str, dict[str, Any]],
) -> None:
    for function in functions.values():
        assert (function["prokind"], function["proisstrict"], function["proleakproof"]) == ("f", False, False)
        assert (function["procost"], function["provariadic"]) == (100, 0)
    assert {name for name, function in functions.items() if function["proparallel"] != "u"} == PARALLEL_SAFE
