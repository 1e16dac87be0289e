"""start_flow: preconditions, the rows it writes, and how far a run gets within the call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core, Sessions


def test_a_root_map_refuses_a_null_input(core: Core) -> None:
    core.flow("mapped")
    core.map_step("mapped", "each")
    before = core.everything("mapped")
    with core.error() as caught:
        core.start("mapped", None)
    assert caught.value.sqlstate == "P0001"
    assert caught.value.diag.message_primary == "Flow mapped has root map steps but input is NULL"
    assert core.everything("mapped") == before


@pytest.mark.parametrize(
    ("run_input", "kind"),
    [({"a": 1}, "object"), ("text", "string"), (1.5, "number"), (True, "boolean"), (Jsonb(None), "null")],
)
def test_a_root_map_refuses_an_input_that_is_no_array(core: Core, run_input: object, kind: str) -> None:
    core.flow("mapped")
    core.step("mapped", "single")
    core.map_step("mapped", "each")
    before = core.everything("mapped")
    with core.error() as caught:
        core.start("mapped", run_input)
    assert caught.value.sqlstate == "P0001"
    assert (
        caught.value.diag.message_primary
        == f"Flow mapped has root map steps but input is not an array (got {kind})"
    )
    assert core.everything("mapped") == before


@pytest.mark.parametrize("run_input", [{"a": 1}, [1, 2], "text", 1.5, True, Jsonb(None)])
def test_a_flow_without_a_root_map_takes_any_json(core: Core, run_input: Any) -> None:
    core.flow("plain")
    core.step("plain", "first")
    core.map_step("plain", "each", "first")
    run = core.start("plain", run_input)
    expected = run_input if isinstance(run_input, Jsonb) else Jsonb(run_input)
    assert core.value("select input = %s from pgflow.runs where run_id = %s", expected, run) is True
    assert core.states(run) == {"first": "started", "each": "created"}


def test_an_sql_null_input_is_refused_by_the_runs_table(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    before = core.everything("plain")
    with core.error() as caught:
        core.start("plain", None)
    assert caught.value.sqlstate == "23502"
    assert (caught.value.diag.table_name, caught.value.diag.column_name) == ("runs", "input")
    assert core.everything("plain") == before


def test_an_unknown_flow_is_refused_by_the_foreign_key(core: Core) -> None:
    with core.error() as caught:
        core.start("absent", {})
    assert caught.value.sqlstate == "23503"
    assert caught.value.diag.constraint_name == "runs_flow_slug_fkey"


def test_a_given_run_id_is_used(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run_id = uuid4()
    row = core.row("select * from pgflow.start_flow('plain', '{}', %s)", run_id)
    assert row["run_id"] == run_id
    assert core.states(run_id) == {"first": "started"}


def test_a_run_id_that_exists_is_refused(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run_id = core.start("plain", {})
    before = core.everything("plain")
    with core.error() as caught:
        core.rows("select * from pgflow.start_flow('plain', '{}', %s)", run_id)
    assert caught.value.sqlstate == "23505"
    assert caught.value.diag.constraint_name == "runs_pkey"
    assert core.everything("plain") == before


def test_a_null_run_id_means_a_random_one_and_each_call_a_new_run(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    first = core.row("select * from pgflow.start_flow('plain', '{}', null)")["run_id"]
    second = core.row("select * from pgflow.start_flow('plain', '{}')")["run_id"]
    assert isinstance(first, UUID)
    assert isinstance(second, UUID)
    assert first != second
    assert core.value("select count(*) from pgflow.runs where flow_slug = 'plain'") == 2


def test_the_run_row_counts_all_steps(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "a")
    core.step("plain", "b", "a")
    core.step("plain", "c", "a", "b")
    now = core.value("select now()")
    assert core.row("select * from pgflow.start_flow('plain', '{\"k\": 1}')") == {
        "run_id": core.value("select run_id from pgflow.runs"),
        "flow_slug": "plain",
        "status": "started",
        "input": {"k": 1},
        "output": None,
        "remaining_steps": 3,
        "started_at": now,
        "completed_at": None,
        "failed_at": None,
    }


def test_each_step_gets_a_state_with_its_counts(core: Core) -> None:
    core.flow("mixed")
    core.step("mixed", "root")
    core.map_step("mixed", "root_map")
    core.step("mixed", "join", "root", "root_map")
    core.map_step("mixed", "late_map", "root")
    run = core.start("mixed", [[1, 2], [3, 4], 5])
    now = core.value("select now()")
    rows = core.rows(
        "select step_slug, status, remaining_deps, initial_tasks, remaining_tasks, created_at, started_at"
        " from pgflow.step_states where run_id = %s order by step_slug",
        run,
    )
    assert [tuple(row.values()) for row in rows] == [
        ("join", "created", 2, 1, None, now, None),
        ("late_map", "created", 1, None, None, now, None),
        ("root", "started", 0, 1, 1, now, now),
        ("root_map", "started", 0, 3, 3, now, now),
    ]


def test_run_started_reports_the_full_count_although_the_call_goes_on(core: Core) -> None:
    core.flow("busy")
    core.step("busy", "skipped", required_input_pattern={"go": True})
    core.step("busy", "first")
    run = core.start("busy", {"go": False})
    assert core.run(run)["remaining_steps"] == 1
    assert core.events(run) == ["run:started", "step:skipped:skipped", "step:first:started"]
    assert core.sent(run)[0]["payload"]["remaining_steps"] == 2


def test_a_condition_that_fails_the_run_ends_the_call_before_anything_starts(core: Core) -> None:
    core.flow("strict")
    core.step("strict", "checked", required_input_pattern={"go": True}, when_unmet="fail")
    core.step("strict", "other")
    row = core.row("select * from pgflow.start_flow('strict', '{}')")
    assert (row["status"], row["remaining_steps"], row["failed_at"]) == (
        "failed",
        2,
        core.value("select now()"),
    )
    assert core.states(row["run_id"]) == {"checked": "failed", "other": "created"}
    assert core.tasks(row["run_id"]) == {}
    assert core.queued("strict") == []
    assert core.events(row["run_id"]) == ["run:started", "step:checked:failed", "run:failed"]


def test_a_failing_condition_ends_the_call_before_an_empty_map_completes(core: Core) -> None:
    core.flow("strict")
    core.step("strict", "checked", required_input_pattern={"go": True}, when_unmet="fail")
    core.map_step("strict", "each")
    run = core.start("strict", [])
    assert core.states(run) == {"checked": "failed", "each": "created"}


def test_conditions_taskless_steps_and_ready_steps_follow_in_this_order(core: Core) -> None:
    core.flow("order_of_call")
    core.step("order_of_call", "single")
    core.map_step("order_of_call", "empty")
    core.step("order_of_call", "unmet", required_input_pattern={"go": True})
    run = core.start("order_of_call", [])
    assert core.events(run) == [
        "run:started",
        "step:unmet:skipped",
        "step:empty:completed",
        "step:single:started",
    ]


def test_a_run_that_has_nothing_to_do_is_returned_completed(core: Core) -> None:
    core.flow("instant")
    core.map_step("instant", "each")
    row = core.row("select * from pgflow.start_flow('instant', '[]')")
    assert (row["status"], row["remaining_steps"], row["output"]) == ("completed", 0, {"each": []})
    assert core.events(row["run_id"]) == ["run:started", "step:each:completed", "run:completed"]


def test_a_flow_without_steps_completes_with_a_null_output(core: Core) -> None:
    core.flow("bare")
    row = core.row("select * from pgflow.start_flow('bare', '{\"k\": 1}')")
    now = core.value("select now()")
    assert (row["status"], row["remaining_steps"], row["completed_at"]) == ("completed", 0, now)
    assert core.value("select output is null from pgflow.runs where run_id = %s", row["run_id"]) is True
    assert core.events(row["run_id"]) == ["run:started", "run:completed"]


def test_a_root_map_with_an_empty_array_completes_without_a_task_and_its_dependents_follow(
    core: Core,
) -> None:
    core.flow("hollow")
    core.map_step("hollow", "each")
    core.step("hollow", "after", "each")
    run = core.start("hollow", [])
    assert core.states(run) == {"each": "completed", "after": "started"}
    assert core.tasks(run) == {"after/0": "queued"}
    assert core.events(run) == ["run:started", "step:each:completed", "step:after:started"]
    assert core.run(run)["remaining_steps"] == 1


def test_an_empty_root_map_with_an_unmet_condition_is_skipped_not_completed(core: Core) -> None:
    core.flow("hollow")
    core.map_step("hollow", "each", required_input_pattern={"go": True})
    run = core.start("hollow", [])
    state = core.state(run, "each")
    assert (state["status"], state["skip_reason"]) == ("skipped", "condition_unmet")
    assert core.run(run)["status"] == "completed"
    assert core.value("select output is null from pgflow.runs where run_id = %s", run) is True


def test_an_exception_leaves_no_run_behind(core: Core) -> None:
    core.flow("long_chain")
    core.map_step("long_chain", "s01")
    for number in range(2, 51):
        core.map_step("long_chain", f"s{number:02}", f"s{number - 1:02}")
    before = core.everything("long_chain")
    with core.error() as caught:
        core.start("long_chain", [])
    assert caught.value.sqlstate == "P0001"
    assert core.everything("long_chain") == before


def test_definitions_are_read_without_locks(sessions: Sessions) -> None:
    writer, starter = sessions("core_0_16_0", 2)
    starter.flow("plain")
    starter.step("plain", "first")
    with writer.transaction():
        writer.execute("update pgflow.flows set opt_timeout = 5")
        writer.execute("update pgflow.steps set opt_timeout = 5")
        starter.execute("set lock_timeout = '5s'")
        run = starter.start("plain", {})
    assert starter.states(run) == {"first": "started"}


def test_a_thousand_elements_become_a_thousand_tasks(core: Core) -> None:
    core.flow("wide")
    core.map_step("wide", "each")
    run = core.start("wide", list(range(1000)))
    assert core.state(run, "each")["remaining_tasks"] == 1000
    assert core.value(
        "select array_agg(task_index order by task_index) = array(select generate_series(0, 999))"
        " from pgflow.step_tasks where run_id = %s",
        run,
    )
    assert len(core.queued("wide")) == 1000
