"""Constraints by name and effect.

Each statement either passes, or is refused by exactly the constraint that is named beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[dict[str, Any]]

RUN = "00000000-0000-4000-8000-000000000001"
WORKER = "00000000-0000-4000-8000-00000000000a"


@pytest.fixture(autouse=True)
def rows_to_spoil(db: Connection) -> None:
    """Flow ``f`` (``a``, then ``b``), a run, the state and the task of ``a``, a worker and a function."""
    db.execute("insert into pgflow.flows (flow_slug) values ('f'), ('g')")
    db.execute(
        "insert into pgflow.steps (flow_slug, step_slug, step_index) values ('f', 'a', 0), ('f', 'b', 1)"
    )
    db.execute("insert into pgflow.deps (flow_slug, dep_slug, step_slug) values ('f', 'a', 'b')")
    db.execute("insert into pgflow.runs (run_id, flow_slug, input) values (%s, 'f', '{}')", (RUN,))
    db.execute("insert into pgflow.step_states (flow_slug, run_id, step_slug) values ('f', %s, 'a')", (RUN,))
    db.execute("insert into pgflow.step_tasks (flow_slug, run_id, step_slug) values ('f', %s, 'a')", (RUN,))
    db.execute(
        "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, 'f', 'fn')", (WORKER,)
    )
    db.execute("insert into pgflow.worker_functions (function_name) values ('fn')")


@pytest.fixture
def refuser(db: Connection) -> Callable[..., tuple[str | None, str | None]]:
    """SQLSTATE and constraint of the error that a plain write raises."""

    def run(statement: str, *parameters: object) -> tuple[str | None, str | None]:
        with pytest.raises(psycopg.Error) as caught:
            db.execute(statement, parameters)
        return caught.value.sqlstate, caught.value.diag.constraint_name

    return run


# table: assignments that its checks allow
ALLOWED: dict[str, list[str]] = {
    "flows": ["opt_max_attempts = 0, opt_base_delay = 0, opt_timeout = 1"],
    "steps": [
        "opt_max_attempts = 0, opt_base_delay = 0, opt_timeout = 1, opt_start_delay = 0",
        "step_type = 'map'",
        "required_input_pattern = '{}', forbidden_input_pattern = '{\"a\": null}'",
        "when_unmet = 'fail', when_exhausted = 'skip'",
        "when_unmet = 'skip-cascade', when_exhausted = 'skip-cascade'",
    ],
    "runs": [
        "status = 'completed', completed_at = started_at, output = '1'",
        "status = 'failed', failed_at = started_at",
    ],
    "step_states": [
        "status = 'started', initial_tasks = 0, remaining_tasks = 1",
        "status = 'completed', remaining_tasks = 0, output = 'null'",
        "status = 'failed', remaining_tasks = 2, failed_at = created_at",
        "status = 'skipped', skip_reason = '', skipped_at = created_at",
        # Without a start, the end is not compared with anything.
        "completed_at = '2000-01-01'",
        "failed_at = '2000-01-01'",
    ],
    "step_tasks": [
        "status = 'started', started_at = queued_at",
        "status = 'completed', output = '1', completed_at = queued_at",
        "status = 'failed', output = '1', failed_at = queued_at",
        "message_id = null",
    ],
    "worker_functions": ["debounce = '1 second', start_mode = 'process'"],
}

# table: (assignment, the check that refuses it)
CHECKED: dict[str, list[tuple[str, str]]] = {
    "flows": [
        ("flow_slug = 'run'", "slug_is_valid"),
        ("opt_max_attempts = -1", "opt_max_attempts_is_nonnegative"),
        ("opt_base_delay = -1", "opt_base_delay_is_nonnegative"),
        ("opt_timeout = 0", "opt_timeout_is_positive"),
    ],
    "steps": [
        ("step_slug = 'run'", "steps_step_slug_check"),
        ("step_type = 'Map'", "steps_step_type_check"),
        ("deps_count = -1", "steps_deps_count_check"),
        ("opt_max_attempts = -1", "opt_max_attempts_is_nonnegative"),
        ("opt_base_delay = -1", "opt_base_delay_is_nonnegative"),
        ("opt_start_delay = -1", "opt_start_delay_is_nonnegative"),
        ("opt_timeout = 0", "opt_timeout_is_positive"),
        ("required_input_pattern = '[]'", "required_input_pattern_is_object"),
        ("forbidden_input_pattern = 'null'", "forbidden_input_pattern_is_object"),
        ("when_unmet = 'Skip'", "when_unmet_is_valid"),
        ("when_exhausted = ''", "when_exhausted_is_valid"),
    ],
    "deps": [("dep_slug = step_slug", "deps_check")],
    "runs": [
        ("status = 'created'", "status_is_valid"),
        ("remaining_steps = -1", "runs_remaining_steps_check"),
        ("completed_at = now(), failed_at = now()", "completed_at_or_failed_at"),
        ("completed_at = started_at - interval '1 us'", "completed_at_is_after_started_at"),
        ("failed_at = started_at - interval '1 us'", "failed_at_is_after_started_at"),
    ],
    "step_states": [
        ("status = 'cancelled'", "status_is_valid"),
        ("status = 'completed', remaining_tasks = 1", "status_and_remaining_tasks_match"),
        ("remaining_tasks = 0", "remaining_tasks_state_consistency"),
        ("status = 'skipped', skip_reason = 'x', remaining_tasks = 0", "remaining_tasks_state_consistency"),
        ("status = 'started'", "initial_tasks_known_when_started"),
        ("output = '1'", "output_only_for_completed_or_null"),
        ("skip_reason = 'x'", "skip_reason_matches_status"),
        ("status = 'skipped', skipped_at = now()", "skip_reason_matches_status"),
        ("completed_at = now(), failed_at = now()", "completed_at_or_failed_at_or_skipped_at"),
        ("completed_at = now(), skipped_at = now()", "completed_at_or_failed_at_or_skipped_at"),
        ("failed_at = now(), skipped_at = now()", "completed_at_or_failed_at_or_skipped_at"),
        ("started_at = created_at - interval '1 us'", "started_at_is_after_created_at"),
        ("started_at = now(), completed_at = now() - interval '1 us'", "completed_at_is_after_started_at"),
        ("started_at = now(), failed_at = now() - interval '1 us'", "failed_at_is_after_started_at"),
        ("skipped_at = created_at - interval '1 us'", "skipped_at_is_after_created_at"),
        ("initial_tasks = -1", "step_states_initial_tasks_check"),
        ("remaining_deps = -1", "step_states_remaining_deps_check"),
    ],
    "step_tasks": [
        ("status = 'created'", "valid_status"),
        ("output = '1'", "output_valid_only_for_completed"),
        ("status = 'started', output = 'null'", "output_valid_only_for_completed"),
        ("attempts_count = -1", "attempts_count_nonnegative"),
        ("completed_at = now(), failed_at = now()", "completed_at_or_failed_at"),
        ("completed_at = queued_at - interval '1 us'", "completed_at_is_after_queued_at"),
        ("failed_at = queued_at - interval '1 us'", "failed_at_is_after_queued_at"),
        ("started_at = queued_at - interval '1 us'", "started_at_is_after_queued_at"),
        ("started_at = now() + interval '1 us', completed_at = now()", "completed_at_is_after_started_at"),
        ("started_at = now() + interval '1 us', failed_at = now()", "failed_at_is_after_started_at"),
    ],
    "worker_functions": [
        ("debounce = '999 ms'", "worker_functions_debounce_check"),
        ("start_mode = 'HTTP'", "worker_functions_start_mode_check"),
    ],
}

STEP = "into pgflow.steps (flow_slug, step_slug, step_index)"
DEPENDENCY = "into pgflow.deps (flow_slug, dep_slug, step_slug)"
STATE = "into pgflow.step_states (flow_slug, run_id, step_slug)"
TASK = "into pgflow.step_tasks (flow_slug, run_id, step_slug)"

# key: statements that violate it, and no other
UNIQUE: dict[str, str] = {
    "flows_pkey": "insert into pgflow.flows (flow_slug) values ('f')",
    "steps_pkey": f"insert {STEP} values ('f', 'a', 9)",
    "steps_flow_slug_step_index_key": f"insert {STEP} values ('f', 'c', 1)",
    "deps_pkey": f"insert {DEPENDENCY} values ('f', 'a', 'b')",
    "runs_pkey": f"insert into pgflow.runs (run_id, flow_slug, input) values ('{RUN}', 'f', '1')",
    "step_states_pkey": f"insert {STATE} values ('f', '{RUN}', 'a')",
    "step_tasks_pkey": f"insert {TASK} values ('f', '{RUN}', 'a')",
    "workers_pkey": f"insert into pgflow.workers values ('{WORKER}', 'f', 'fn')",
    "worker_functions_pkey": "insert into pgflow.worker_functions (function_name) values ('fn')",
}
FOREIGN: list[tuple[str, str]] = [
    ("steps_flow_slug_fkey", f"insert {STEP} values ('ghost', 'c', 9)"),
    ("deps_flow_slug_dep_slug_fkey", f"insert {DEPENDENCY} values ('f', 'x', 'a')"),
    ("deps_flow_slug_step_slug_fkey", f"insert {DEPENDENCY} values ('f', 'a', 'x')"),
    ("runs_flow_slug_fkey", "insert into pgflow.runs (flow_slug, input) values ('ghost', '1')"),
    ("step_states_run_id_fkey", f"insert {STATE} values ('f', gen_random_uuid(), 'a')"),
    ("step_states_flow_slug_step_slug_fkey", f"insert {STATE} values ('f', '{RUN}', 'x')"),
    ("step_tasks_run_id_step_slug_fkey", f"insert {TASK} values ('f', '{RUN}', 'b')"),
    ("step_tasks_flow_slug_fkey", "update pgflow.step_tasks set flow_slug = 'ghost'"),
    ("step_tasks_last_worker_id_fkey", "update pgflow.step_tasks set last_worker_id = gen_random_uuid()"),
    # The referenced row cannot go either.
    ("deps_flow_slug_step_slug_fkey", "delete from pgflow.steps where step_slug = 'b'"),
    ("step_tasks_run_id_step_slug_fkey", "delete from pgflow.step_states"),
]
# Each is implied by another key, so no statement violates it alone: only the catalogue shows it.
IMPLIED = {
    "deps_flow_slug_fkey": "FOREIGN KEY (flow_slug) REFERENCES pgflow.flows(flow_slug)",
    "step_states_flow_slug_fkey": "FOREIGN KEY (flow_slug) REFERENCES pgflow.flows(flow_slug)",
    "step_tasks_run_id_fkey": "FOREIGN KEY (run_id) REFERENCES pgflow.runs(run_id)",
}


@pytest.mark.parametrize(
    ("table", "assignment"), [(table, allowed) for table in ALLOWED for allowed in ALLOWED[table]]
)
def test_the_checks_allow(db: Connection, table: str, assignment: str) -> None:
    assert db.execute(f"update pgflow.{table} set {assignment}").rowcount > 0


@pytest.mark.parametrize(
    ("table", "assignment", "constraint"),
    [(table, *checked) for table in CHECKED for checked in CHECKED[table]],
)
def test_a_check_refuses(
    refuser: Callable[..., tuple[str, str]], table: str, assignment: str, constraint: str
) -> None:
    assert refuser(f"update pgflow.{table} set {assignment}") == ("23514", constraint)


@pytest.mark.parametrize(("constraint", "statement"), UNIQUE.items())
def test_a_key_refuses_a_second_row(
    refuser: Callable[..., tuple[str, str]], statement: str, constraint: str
) -> None:
    assert refuser(statement) == ("23505", constraint)


@pytest.mark.parametrize(("constraint", "statement"), FOREIGN)
def test_a_foreign_key_refuses(
    refuser: Callable[..., tuple[str, str]], statement: str, constraint: str
) -> None:
    assert refuser(statement) == ("23503", constraint)


def test_there_are_no_other_constraints(rows: Callable[..., list[dict[str, Any]]]) -> None:
    found = rows(
        "select conname from pg_constraint where connamespace = 'pgflow'::regnamespace"
        " and contype in ('c', 'f', 'p', 'u')"
    )
    checks = {constraint for checked in CHECKED.values() for _, constraint in checked}
    assert {constraint["conname"] for constraint in found} == {
        *checks,
        *UNIQUE,
        *(constraint for constraint, _ in FOREIGN),
        *IMPLIED,
    }


@pytest.mark.parametrize(("constraint", "definition"), IMPLIED.items())
def test_a_foreign_key_implied_by_another_is_there(
    value: Callable[..., Any], constraint: str, definition: str
) -> None:
    stored = value("select pg_get_constraintdef(oid) from pg_constraint where conname = %s", constraint)
    assert stored == definition


def test_every_foreign_key_takes_no_action_but_that_on_workers(
    rows: Callable[..., list[dict[str, Any]]],
) -> None:
    found = rows(
        "select conname, confdeltype::text as deleted, confupdtype::text as updated, condeferrable"
        " from pg_constraint where connamespace = 'pgflow'::regnamespace and contype = 'f'"
    )
    assert len(found) == 12
    assert {key["conname"] for key in found if key["deleted"] != "a"} == {"step_tasks_last_worker_id_fkey"}
    assert {(key["updated"], key["condeferrable"]) for key in found} == {("a", False)}


def test_deleting_a_worker_keeps_its_tasks_without_their_worker(
    db: Connection, row: Callable[..., dict[str, Any]]
) -> None:
    db.execute("update pgflow.step_tasks set last_worker_id = %s, status = 'started'", (WORKER,))
    db.execute("delete from pgflow.workers")
    assert row("select status, last_worker_id from pgflow.step_tasks") == {
        "status": "started",
        "last_worker_id": None,
    }


@pytest.mark.parametrize("release", ["core_0_15_0"], indirect=True)
@pytest.mark.parametrize("status", ["skipped", "cancelled"])
def test_a_task_can_be_neither_skipped_nor_cancelled_at_0_15_0(
    refuser: Callable[..., tuple[str, str]], status: str
) -> None:
    assert refuser("update pgflow.step_tasks set status = %s", status) == ("23514", "valid_status")


@pytest.mark.parametrize("release", ["core_0_15_1", "core_0_16_0"], indirect=True)
@pytest.mark.parametrize("status", ["skipped", "cancelled"])
def test_a_task_can_be_skipped_and_cancelled_since_0_15_1(db: Connection, status: str) -> None:
    assert db.execute("update pgflow.step_tasks set status = %s", (status,)).rowcount == 1


def test_message_ids_may_repeat(db: Connection) -> None:
    db.execute("update pgflow.step_tasks set message_id = 1")
    repeated = db.execute(
        "insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index, message_id)"
        " select flow_slug, run_id, step_slug, 1, message_id from pgflow.step_tasks"
    )
    assert repeated.rowcount == 1
