"""Indexes that are not the index of a constraint: columns and predicate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

INDEXES = {
    "idx_deps_by_flow_step": ("deps", ["flow_slug", "step_slug"], None),
    "idx_deps_by_flow_dep": ("deps", ["flow_slug", "dep_slug"], None),
    "idx_runs_flow_slug": ("runs", ["flow_slug"], None),
    "idx_runs_status": ("runs", ["status"], None),
    "idx_step_states_ready": (
        "step_states",
        ["run_id", "status", "remaining_deps"],
        "((status = 'created'::text) AND (remaining_deps = 0))",
    ),
    "idx_step_states_failed": ("step_states", ["run_id", "step_slug"], "(status = 'failed'::text)"),
    "idx_step_states_skipped": ("step_states", ["run_id", "step_slug"], "(status = 'skipped'::text)"),
    "idx_step_states_flow_slug": ("step_states", ["flow_slug"], None),
    "idx_step_states_run_id": ("step_states", ["run_id"], None),
    "idx_step_tasks_message_id": ("step_tasks", ["message_id"], None),
    "idx_step_tasks_queued": ("step_tasks", ["run_id", "step_slug"], "(status = 'queued'::text)"),
    "idx_step_tasks_completed": ("step_tasks", ["run_id", "step_slug"], "(status = 'completed'::text)"),
    "idx_step_tasks_failed": ("step_tasks", ["run_id", "step_slug"], "(status = 'failed'::text)"),
    "idx_step_tasks_flow_run_step": ("step_tasks", ["flow_slug", "run_id", "step_slug"], None),
    "idx_step_tasks_started": ("step_tasks", ["started_at"], "(status = 'started'::text)"),
    "idx_step_tasks_queued_msg": ("step_tasks", ["message_id"], "(status = 'queued'::text)"),
    "idx_step_tasks_last_worker": ("step_tasks", ["last_worker_id"], "(status = 'started'::text)"),
    "idx_workers_queue_name": ("workers", ["queue_name"], None),
    "idx_workers_heartbeat": ("workers", ["last_heartbeat_at"], None),
}


def test_indexes_have_their_columns_and_predicates(rows: Callable[..., list[dict[str, Any]]]) -> None:
    found = rows(
        """
        select indexrelid::regclass::text as name, relname, pg_get_expr(indpred, indrelid) as predicate,
          array(select attname::text from unnest(indkey) with ordinality as k (number, position)
                join pg_attribute on attrelid = indrelid and attnum = k.number order by position) as columns
        from pg_index join pg_class on pg_class.oid = indrelid
        where relnamespace = 'pgflow'::regnamespace and not indisunique
        """
    )
    indexes = {
        str(index["name"]).removeprefix("pgflow."): (index["relname"], index["columns"], index["predicate"])
        for index in found
    }
    assert indexes == INDEXES


def test_no_index_is_unique_but_those_of_constraints(rows: Callable[..., list[dict[str, Any]]]) -> None:
    found = rows(
        "select indexrelid::regclass::text as name from pg_index join pg_class on pg_class.oid = indrelid"
        " where relnamespace = 'pgflow'::regnamespace and indisunique"
    )
    assert {str(index["name"]).removeprefix("pgflow.") for index in found} == {
        "flows_pkey",
        "steps_pkey",
        "steps_flow_slug_step_index_key",
        "deps_pkey",
        "runs_pkey",
        "step_states_pkey",
        "step_tasks_pkey",
        "workers_pkey",
        "worker_functions_pkey",
    }
