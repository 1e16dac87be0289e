"""start_ready_steps: states, messages and task rows of the steps whose turn it is."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core


def start_ready(core: Core, run: UUID) -> None:
    core.execute("select pgflow.start_ready_steps(%s)", run)


def make_ready(core: Core, run: UUID, step: str, initial_tasks: int | None = 1) -> None:
    """Release a step that waits for its parents."""
    core.execute(
        "update pgflow.step_states set remaining_deps = 0, initial_tasks = %s"
        " where run_id = %s and step_slug = %s",
        initial_tasks,
        run,
        step,
    )


def gated(core: Core) -> UUID:
    """Two single steps and a map wait for a gate."""
    core.flow("gated")
    core.step("gated", "gate")
    core.step("gated", "zz", "gate")
    core.step("gated", "aa", "gate", start_delay=40)
    core.map_step("gated", "mm", "gate", start_delay=90)
    return core.start("gated", {})


@pytest.mark.parametrize("status", ["failed", "completed"])
def test_a_finished_run_is_left_alone(core: Core, status: str) -> None:
    run = gated(core)
    make_ready(core, run, "zz")
    core.execute(f"update pgflow.runs set status = '{status}', {status}_at = now() where run_id = %s", run)
    before = core.everything("gated")
    start_ready(core, run)
    assert core.everything("gated") == before


def test_an_unknown_run_is_ignored(core: Core) -> None:
    before = core.everything()
    start_ready(core, uuid4())
    assert core.everything() == before


@pytest.mark.parametrize("initial_tasks", [None, 0])
def test_a_ready_map_without_tasks_is_not_started(core: Core, initial_tasks: int | None) -> None:
    run = gated(core)
    make_ready(core, run, "mm", initial_tasks)
    before = core.everything("gated")
    start_ready(core, run)
    assert core.everything("gated") == before


def test_a_step_that_waits_for_a_parent_is_not_started(core: Core) -> None:
    run = gated(core)
    before = core.everything("gated")
    start_ready(core, run)
    assert core.everything("gated") == before


def test_a_started_step_has_its_time_and_all_its_tasks_to_go(core: Core) -> None:
    run = gated(core)
    make_ready(core, run, "mm", 3)
    start_ready(core, run)
    state = core.state(run, "mm")
    assert (state["status"], state["started_at"]) == ("started", core.value("select now()"))
    assert (state["initial_tasks"], state["remaining_tasks"]) == (3, 3)
    assert core.events(run)[-1] == "step:mm:started"
    assert core.events(run).count("step:mm:started") == 1


def test_message_ids_ascend_with_the_step_slug_and_the_task_index(core: Core) -> None:
    run = gated(core)
    for slug, count in (("zz", 1), ("mm", 3), ("aa", 1)):
        make_ready(core, run, slug, count)
    start_ready(core, run)
    gate = core.task(run, "gate")["message_id"]
    rows = core.rows(
        "select step_slug, task_index, message_id - %s as offset from pgflow.step_tasks"
        " where run_id = %s order by message_id",
        gate,
        run,
    )
    assert [tuple(row.values()) for row in rows] == [
        ("gate", 0, 0),
        ("aa", 0, 1),
        ("mm", 0, 2),
        ("mm", 1, 3),
        ("mm", 2, 4),
        ("zz", 0, 5),
    ]


def test_each_message_has_one_queued_task(core: Core) -> None:
    run = gated(core)
    make_ready(core, run, "mm", 2)
    start_ready(core, run)
    now = core.value("select now()")
    for index in range(2):
        message = core.task(run, "mm", index)["message_id"]
        assert core.task(run, "mm", index) == {
            "flow_slug": "gated",
            "run_id": run,
            "step_slug": "mm",
            "message_id": message,
            "task_index": index,
            "status": "queued",
            "attempts_count": 0,
            "error_message": None,
            "output": None,
            "queued_at": now,
            "completed_at": None,
            "failed_at": None,
            "started_at": None,
            "last_worker_id": None,
            "requeued_count": 0,
            "last_requeued_at": None,
            "permanently_stalled_at": None,
            **({"queue_name": "gated"} if core.routed else {}),
            **({"current_claim_id": None} if core.release == "dirty_runs" else {}),
        }
    assert core.queued("gated") == core.messages(run, "gate", "mm")


@pytest.mark.parametrize(("step", "delay"), [("zz", 0), ("aa", 40)])
def test_the_start_delay_holds_the_message_back(core: Core, step: str, delay: int) -> None:
    run = gated(core)
    make_ready(core, run, step)
    with core.visible_in(run, step, delay):
        start_ready(core, run)
    assert core.state(run, step)["status"] == "started"


def test_all_messages_of_a_map_are_delayed_alike(core: Core) -> None:
    run = gated(core)
    make_ready(core, run, "mm", 3)
    with (
        core.visible_in(run, "mm", 90, 0),
        core.visible_in(run, "mm", 90, 1),
        core.visible_in(run, "mm", 90, 2),
    ):
        start_ready(core, run)


def test_a_second_call_starts_nothing(core: Core) -> None:
    run = gated(core)
    make_ready(core, run, "zz")
    start_ready(core, run)
    before = core.everything("gated")
    start_ready(core, run)
    assert core.everything("gated") == before


def test_conditions_are_not_evaluated(core: Core) -> None:
    core.flow("strict")
    core.step("strict", "gate")
    core.step("strict", "after", "gate", required_input_pattern={"never": "there"}, when_unmet="fail")
    run = core.start("strict", {})
    make_ready(core, run, "after")
    start_ready(core, run)
    assert core.states(run) == {"gate": "started", "after": "started"}


def test_only_the_given_run_is_started(core: Core) -> None:
    run = gated(core)
    other = core.start("gated", {})
    for each in (run, other):
        make_ready(core, each, "zz")
    start_ready(core, run)
    assert core.states(run)["zz"] == "started"
    assert core.states(other)["zz"] == "created"
