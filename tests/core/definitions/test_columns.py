"""Columns of the core's tables, in physical order: functions return whole rows, so positions count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

# name, type, nullable or not, default
COLUMNS: dict[str, str] = {
    "flows": """
        flow_slug         | text                     | not null |
        opt_max_attempts  | integer                  | not null | 3
        opt_base_delay    | integer                  | not null | 1
        opt_timeout       | integer                  | not null | 60
        created_at        | timestamp with time zone | not null | now()
    """,
    "steps": """
        flow_slug               | text                     | not null |
        step_slug               | text                     | not null |
        step_type               | text                     | not null | 'single'::text
        step_index              | integer                  | not null | 0
        deps_count              | integer                  | not null | 0
        opt_max_attempts        | integer                  | null     |
        opt_base_delay          | integer                  | null     |
        opt_timeout             | integer                  | null     |
        created_at              | timestamp with time zone | not null | now()
        opt_start_delay         | integer                  | null     |
        required_input_pattern  | jsonb                    | null     |
        forbidden_input_pattern | jsonb                    | null     |
        when_unmet              | text                     | not null | 'skip'::text
        when_exhausted          | text                     | not null | 'fail'::text
    """,
    "deps": """
        flow_slug  | text                     | not null |
        dep_slug   | text                     | not null |
        step_slug  | text                     | not null |
        created_at | timestamp with time zone | not null | now()
    """,
    "runs": """
        run_id          | uuid                     | not null | gen_random_uuid()
        flow_slug       | text                     | not null |
        status          | text                     | not null | 'started'::text
        input           | jsonb                    | not null |
        output          | jsonb                    | null     |
        remaining_steps | integer                  | not null | 0
        started_at      | timestamp with time zone | not null | now()
        completed_at    | timestamp with time zone | null     |
        failed_at       | timestamp with time zone | null     |
    """,
    "step_states": """
        flow_slug       | text                     | not null |
        run_id          | uuid                     | not null |
        step_slug       | text                     | not null |
        status          | text                     | not null | 'created'::text
        remaining_tasks | integer                  | null     |
        remaining_deps  | integer                  | not null | 0
        created_at      | timestamp with time zone | not null | now()
        started_at      | timestamp with time zone | null     |
        completed_at    | timestamp with time zone | null     |
        failed_at       | timestamp with time zone | null     |
        error_message   | text                     | null     |
        initial_tasks   | integer                  | null     |
        output          | jsonb                    | null     |
        skip_reason     | text                     | null     |
        skipped_at      | timestamp with time zone | null     |
    """,
    "step_tasks": """
        flow_slug              | text                     | not null |
        run_id                 | uuid                     | not null |
        step_slug              | text                     | not null |
        message_id             | bigint                   | null     |
        task_index             | integer                  | not null | 0
        status                 | text                     | not null | 'queued'::text
        attempts_count         | integer                  | not null | 0
        error_message          | text                     | null     |
        output                 | jsonb                    | null     |
        queued_at              | timestamp with time zone | not null | now()
        completed_at           | timestamp with time zone | null     |
        failed_at              | timestamp with time zone | null     |
        started_at             | timestamp with time zone | null     |
        last_worker_id         | uuid                     | null     |
        requeued_count         | integer                  | not null | 0
        last_requeued_at       | timestamp with time zone | null     |
        permanently_stalled_at | timestamp with time zone | null     |
    """,
    "workers": """
        worker_id         | uuid                     | not null |
        queue_name        | text                     | not null |
        function_name     | text                     | not null |
        started_at        | timestamp with time zone | not null | now()
        deprecated_at     | timestamp with time zone | null     |
        last_heartbeat_at | timestamp with time zone | not null | now()
        stopped_at        | timestamp with time zone | null     |
    """,
    "worker_functions": """
        function_name   | text                     | not null |
        enabled         | boolean                  | not null | true
        debounce        | interval                 | not null | '00:00:06'::interval
        last_invoked_at | timestamp with time zone | null     |
        created_at      | timestamp with time zone | not null | now()
        updated_at      | timestamp with time zone | not null | now()
        start_mode      | text                     | not null | 'http'::text
    """,
    "step_task_record": """
        flow_slug  | text    | null |
        run_id     | uuid    | null |
        step_slug  | text    | null |
        input      | jsonb   | null |
        msg_id     | bigint  | null |
        task_index | integer | null |
        flow_input | jsonb   | null |
    """,
}


@pytest.mark.parametrize("relation", COLUMNS)
def test_columns_have_their_order_type_and_default(
    rows: Callable[..., list[dict[str, Any]]], relation: str
) -> None:
    found = rows(
        """
        select attname as name, format_type(atttypid, atttypmod) as type,
          case when attnotnull then 'not null' else 'null' end as nullability,
          coalesce(pg_get_expr(adbin, adrelid), '') as default
        from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
        where attrelid = ('pgflow.' || %s)::regclass and attnum > 0 and not attisdropped
        order by attnum
        """,
        relation,
    )
    expected = [[cell.strip() for cell in line.split("|")] for line in COLUMNS[relation].strip().splitlines()]
    assert [list(column.values()) for column in found] == expected


def test_the_schema_holds_these_tables_and_this_type_and_nothing_else(
    rows: Callable[..., list[dict[str, Any]]],
) -> None:
    found = rows(
        "select relname, relkind::text, relpersistence::text from pg_class"
        " where relnamespace = 'pgflow'::regnamespace and relkind <> 'i'"
    )
    kinds = {name: "c" if name == "step_task_record" else "r" for name in COLUMNS}
    assert {item["relname"]: item["relkind"] for item in found} == kinds
    assert {item["relpersistence"] for item in found} == {"p"}


def test_the_schema_has_no_triggers_and_no_row_security(rows: Callable[..., list[dict[str, Any]]]) -> None:
    assert not rows(
        "select from pg_trigger join pg_class on pg_class.oid = tgrelid"
        " where relnamespace = 'pgflow'::regnamespace and not tgisinternal"
    )
    assert not rows("select from pg_policies where schemaname = 'pgflow'")
    assert not rows("select from pg_class where relnamespace = 'pgflow'::regnamespace and relrowsecurity")


def test_nothing_is_granted_or_revoked(rows: Callable[..., list[dict[str, Any]]]) -> None:
    assert not rows("select from pg_namespace where nspname = 'pgflow' and nspacl is not null")
    assert not rows("select from pg_class where relnamespace = 'pgflow'::regnamespace and relacl is not null")
    assert not rows("select from pg_proc where pronamespace = 'pgflow'::regnamespace and proacl is not null")


def test_the_start_mode_is_explained(value: Callable[..., Any]) -> None:
    assert value("select col_description('pgflow.worker_functions'::regclass, 7)")
    assert value("select obj_description('pgflow.track_worker_function(text, text)'::regprocedure)")
