"""``pgflow.get_run_with_states`` and ``pgflow.start_flow_with_states``: a run and its steps in one JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

Connection = psycopg.Connection[dict[str, Any]]

RUN_KEYS = {
    "run_id",
    "flow_slug",
    "status",
    "input",
    "output",
    "remaining_steps",
    "started_at",
    "completed_at",
    "failed_at",
}
STEP_KEYS = {
    "flow_slug",
    "run_id",
    "step_slug",
    "status",
    "remaining_tasks",
    "remaining_deps",
    "created_at",
    "started_at",
    "completed_at",
    "failed_at",
    "error_message",
    "initial_tasks",
    "output",
    "skip_reason",
    "skipped_at",
}
RUN_ID = "00000000-0000-4000-8000-000000000001"


@pytest.fixture(autouse=True)
def flow(db: Connection) -> None:
    """Flow ``f``: ``a``, then ``b``."""
    db.execute("select pgflow.create_flow('f')")
    db.execute("select pgflow.add_step('f', 'a')")
    db.execute("select pgflow.add_step('f', 'b', array['a'])")


def test_shows_every_column_of_the_run_and_of_its_steps(db: Connection, value: Callable[..., Any]) -> None:
    db.execute("select pgflow.start_flow('f', '{\"x\": 1}', %s)", (RUN_ID,))
    db.execute("select pgflow.start_flow('f', '{\"x\": 2}')")
    found = value("select pgflow.get_run_with_states(%s)", RUN_ID)
    assert set(found) == {"run", "steps"}
    assert set(found["run"]) == RUN_KEYS
    assert (found["run"]["run_id"], found["run"]["input"]) == (RUN_ID, {"x": 1})
    assert (found["run"]["status"], found["run"]["remaining_steps"]) == ("started", 2)
    assert [set(step) for step in found["steps"]] == [STEP_KEYS, STEP_KEYS]
    assert {step["step_slug"]: (step["status"], step["remaining_deps"]) for step in found["steps"]} == {
        "a": ("started", 0),
        "b": ("created", 1),
    }
    assert {step["run_id"] for step in found["steps"]} == {RUN_ID}


def test_the_document_equals_the_stored_rows(db: Connection, value: Callable[..., Any]) -> None:
    db.execute("select pgflow.start_flow('f', '[1]', %s)", (RUN_ID,))
    found = value("select pgflow.get_run_with_states(%s)", RUN_ID)
    assert found["run"] == value("select to_jsonb(r) from pgflow.runs as r")
    stored = value("select jsonb_agg(to_jsonb(s) order by step_slug) from pgflow.step_states as s")
    assert sorted(found["steps"], key=lambda step: str(step["step_slug"])) == stored


def test_a_run_without_steps_has_an_empty_list(db: Connection, value: Callable[..., Any]) -> None:
    db.execute("select pgflow.create_flow('empty')")
    db.execute("select pgflow.start_flow('empty', '{}', %s)", (RUN_ID,))
    assert value("select pgflow.get_run_with_states(%s)", RUN_ID)["steps"] == []


def test_an_unknown_run_gives_null(value: Callable[..., Any]) -> None:
    assert value("select pgflow.get_run_with_states(%s)", RUN_ID) is None


def test_starting_returns_the_states_of_the_new_run(value: Callable[..., Any]) -> None:
    found = value("select pgflow.start_flow_with_states('f', '{\"x\": 1}')")
    assert found == value("select pgflow.get_run_with_states(run_id) from pgflow.runs")
    assert found["run"]["input"] == {"x": 1}
    assert {step["step_slug"] for step in found["steps"]} == {"a", "b"}


def test_starting_uses_a_given_run_id(value: Callable[..., Any]) -> None:
    found = value("select pgflow.start_flow_with_states('f', '{}', %s)", RUN_ID)
    assert found["run"]["run_id"] == RUN_ID


@pytest.mark.parametrize(
    ("call", "sqlstate", "constraint"),
    [
        ("start_flow_with_states('ghost', '{}')", "23503", "runs_flow_slug_fkey"),
        ("start_flow_with_states('f', null)", "23502", None),
        (f"start_flow_with_states('f', '{{}}', '{RUN_ID}')", "23505", "runs_pkey"),
    ],
)
def test_starting_raises_what_start_flow_raises(
    db: Connection,
    violates: Callable[..., tuple[str, str | None]],
    call: str,
    sqlstate: str,
    constraint: str | None,
) -> None:
    db.execute("select pgflow.start_flow('f', '{}', %s)", (RUN_ID,))
    assert violates(f"select pgflow.{call}") == (sqlstate, constraint)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "Flow m has root map steps but input is NULL"),
        (Jsonb({}), "Flow m has root map steps but input is not an array (got object)"),
    ],
)
def test_starting_a_root_map_without_an_array_is_refused(
    db: Connection, refused: Callable[..., psycopg.Error], document: Jsonb | None, message: str
) -> None:
    db.execute("select pgflow.create_flow('m')")
    db.execute("select pgflow.add_step('m', 'each', step_type => 'map')")
    error = refused("select pgflow.start_flow_with_states('m', %s)", document)
    assert (error.sqlstate, error.diag.message_primary) == ("P0001", message)


def test_a_role_that_may_only_use_the_schema_can_start_and_watch(
    db: Connection, value: Callable[..., Any]
) -> None:
    db.execute("create role definitions_visitor")
    db.execute("grant usage on schema pgflow to definitions_visitor")
    db.execute("set local role definitions_visitor")
    # Both functions run with their owner's rights; the role itself may not read the tables.
    started = value("select pgflow.start_flow_with_states('f', '{}')")
    assert value("select pgflow.get_run_with_states(%s)", started["run"]["run_id"]) == started
    with pytest.raises(psycopg.errors.InsufficientPrivilege), db.transaction():
        db.execute("select from pgflow.runs")
