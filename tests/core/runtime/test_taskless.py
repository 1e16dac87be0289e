"""cascade_complete_taskless_steps: waves of steps that have nothing to do."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core

UNMET = {"never": "there"}


def complete_taskless(core: Core, run: UUID) -> int:
    count: int = core.value("select pgflow.cascade_complete_taskless_steps(%s)", run)
    return count


def test_a_taskless_map_completes_with_an_empty_array_and_no_start_event(core: Core) -> None:
    core.flow("hollow")
    core.map_step("hollow", "each")
    core.step("hollow", "after", "each")
    run = core.start("hollow", [])
    now = core.value("select now()")
    state = core.state(run, "each")
    assert (state["status"], state["output"], state["remaining_tasks"]) == ("completed", [], 0)
    assert (state["started_at"], state["completed_at"]) == (now, now)
    assert core.events(run) == ["run:started", "step:each:completed", "step:after:started"]


def test_a_taskless_single_step_completes_with_a_null_output(core: Core) -> None:
    """Never happens by itself: the task count is set by hand."""
    core.flow("hollow")
    core.step("hollow", "gate")
    core.step("hollow", "one", "gate")
    core.step("hollow", "after", "one")
    run = core.start("hollow", {})
    core.execute(
        "update pgflow.step_states set initial_tasks = 0, remaining_deps = 0"
        " where run_id = %s and step_slug = 'one'",
        run,
    )
    assert complete_taskless(core, run) == 1
    state = core.state(run, "one")
    assert (state["status"], state["remaining_tasks"]) == ("completed", 0)
    assert core.value("select output is null from pgflow.step_states where step_slug = 'one'") is True
    assert core.state(run, "after")["remaining_deps"] == 0
    assert core.sent(run)[-1]["payload"]["output"] is None


def test_dependents_are_released_and_the_run_counts_down(core: Core) -> None:
    core.flow("fan")
    core.map_step("fan", "m1")
    core.map_step("fan", "m2")
    core.step("fan", "live")
    core.step("fan", "both", "m1", "m2")
    core.step("fan", "three", "m1", "m2", "live")
    core.map_step("fan", "chained", "m1")
    run = core.start("fan", [])
    assert core.states(run) == {
        "m1": "completed",
        "m2": "completed",
        "live": "started",
        "both": "started",
        "three": "created",
        "chained": "completed",
    }
    assert core.state(run, "three")["remaining_deps"] == 1
    chained = core.state(run, "chained")
    assert (chained["initial_tasks"], chained["output"]) == (0, [])
    assert core.run(run)["remaining_steps"] == 3


def test_parents_are_announced_before_their_dependents_once_each(core: Core) -> None:
    core.flow("waves")
    core.map_step("waves", "zz")
    core.map_step("waves", "mm", "zz")
    core.map_step("waves", "aa", "mm")
    run = core.start("waves", [])
    assert core.events(run) == [
        "run:started",
        "step:zz:completed",
        "step:mm:completed",
        "step:aa:completed",
        "run:completed",
    ]


def test_the_count_covers_all_waves(core: Core) -> None:
    core.flow("waves")
    core.step("waves", "gate")
    core.map_step("waves", "m1", "gate")
    core.map_step("waves", "m2", "m1")
    run = core.start("waves", {})
    core.execute(
        "update pgflow.step_states set initial_tasks = 0, remaining_deps = 0"
        " where run_id = %s and step_slug = 'm1'",
        run,
    )
    assert complete_taskless(core, run) == 2
    assert core.states(run) == {"gate": "started", "m1": "completed", "m2": "completed"}
    assert core.run(run)["remaining_steps"] == 1
    assert complete_taskless(core, run) == 0


def chain_of_maps(core: Core, length: int) -> None:
    core.flow("chain")
    core.map_step("chain", "s01")
    for number in range(2, length + 1):
        core.map_step("chain", f"s{number:02}", f"s{number - 1:02}")


def test_a_chain_of_49_empty_maps_completes(core: Core) -> None:
    chain_of_maps(core, 49)
    run = core.start("chain", [])
    assert set(core.states(run).values()) == {"completed"}
    assert (core.run(run)["status"], core.run(run)["output"]) == ("completed", {"s49": []})


@pytest.mark.parametrize("length", [50, 51])
def test_a_chain_of_50_empty_maps_exceeds_the_limit(core: Core, length: int) -> None:
    chain_of_maps(core, length)
    before = core.everything("chain")
    with core.error() as caught:
        core.start("chain", [])
    assert caught.value.sqlstate == "P0001"
    assert caught.value.diag.message_primary == "Cascade loop exceeded safety limit of 50 iterations"
    assert core.everything("chain") == before


def test_without_taskless_steps_the_count_is_zero_and_nothing_changes(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    core.step("plain", "second", "first")
    run = core.start("plain", {})
    before = core.everything("plain")
    assert complete_taskless(core, run) == 0
    assert core.everything("plain") == before


def test_an_unknown_run_counts_zero(core: Core) -> None:
    assert complete_taskless(core, uuid4()) == 0


def test_after_a_failed_step_nothing_is_taskless(core: Core) -> None:
    core.flow("broken", max_attempts=1)
    core.step("broken", "first")
    core.map_step("broken", "each", "first")
    run = core.start("broken", {})
    core.break_(run, "first")
    before = core.everything("broken")
    assert complete_taskless(core, run) == 0
    assert core.everything("broken") == before


def test_the_status_of_the_run_is_not_looked_at(core: Core) -> None:
    core.flow("broken")
    core.step("broken", "gate")
    core.map_step("broken", "each", "gate")
    run = core.start("broken", {})
    core.execute("update pgflow.runs set status = 'failed', failed_at = now() where run_id = %s", run)
    core.execute(
        "update pgflow.step_states set initial_tasks = 0, remaining_deps = 0"
        " where run_id = %s and step_slug = 'each'",
        run,
    )
    assert complete_taskless(core, run) == 1
    assert core.states(run) == {"gate": "started", "each": "completed"}
    assert (core.run(run)["status"], core.run(run)["remaining_steps"]) == ("failed", 1)


@pytest.mark.parametrize("mode", ["fail", "skip", "skip-cascade"])
def test_a_single_step_made_ready_by_an_empty_map_starts_although_its_condition_is_unmet(
    core: Core, mode: str
) -> None:
    """Conditions are not resolved again after the taskless cascade."""
    core.flow("oddity")
    core.map_step("oddity", "each")
    core.step("oddity", "after", "each", required_input_pattern=UNMET, when_unmet=mode)
    run = core.start("oddity", [])
    assert core.states(run) == {"each": "completed", "after": "started"}
    assert core.tasks(run) == {"after/0": "queued"}
    assert core.run(run)["status"] == "started"


def test_a_skipped_root_a_taskless_map_and_then_a_failing_condition_do_not_fail_the_run(core: Core) -> None:
    core.flow("oddity")
    core.step("oddity", "root", required_input_pattern=UNMET)
    core.map_step("oddity", "each", "root")
    core.step("oddity", "after", "each", required_input_pattern=UNMET, when_unmet="fail")
    run = core.start("oddity", {})
    assert core.states(run) == {"root": "skipped", "each": "completed", "after": "started"}
    assert core.run(run)["status"] == "started"


@pytest.mark.parametrize("mode", ["fail", "skip", "skip-cascade"])
def test_a_map_made_ready_by_an_empty_map_completes_although_its_condition_is_unmet(
    core: Core, mode: str
) -> None:
    core.flow("oddity")
    core.map_step("oddity", "m1")
    core.map_step("oddity", "m2", "m1", required_input_pattern=UNMET, when_unmet=mode)
    run = core.start("oddity", [])
    assert core.states(run) == {"m1": "completed", "m2": "completed"}
    assert core.run(run)["output"] == {"m2": []}


def test_a_map_that_directly_follows_a_completed_step_is_tested_first(core: Core) -> None:
    core.flow("oddity")
    core.step("oddity", "first")
    core.map_step("oddity", "each", "first", required_input_pattern=UNMET)
    run = core.start("oddity", {})
    core.do(run, "first", [])
    state = core.state(run, "each")
    assert (state["status"], state["skip_reason"], state["initial_tasks"]) == (
        "skipped",
        "condition_unmet",
        0,
    )


def test_an_empty_output_completes_a_chain_of_maps_within_the_callback(core: Core) -> None:
    core.flow("waves")
    core.step("waves", "first")
    core.map_step("waves", "m1", "first")
    core.map_step("waves", "m2", "m1")
    core.step("waves", "last", "m2")
    run = core.start("waves", {})
    core.do(run, "first", [])
    assert core.events(run) == [
        "run:started",
        "step:first:started",
        "step:first:completed",
        "step:m1:completed",
        "step:m2:completed",
        "step:last:started",
    ]
    (record,) = core.claim(run, "last")
    assert record["input"] == {"m2": []}
