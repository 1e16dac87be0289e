"""complete_task of a single step before a map: anything but an array fails the run."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core

TYPES = [
    ({"a": 1}, "object"),
    ("text", "string"),
    (1, "number"),
    (True, "boolean"),
    (Jsonb(None), "null"),
    (None, "null"),
]


def before_a_map(core: Core, **options: object) -> UUID:
    """``list`` feeds ``each``; ``busy`` is claimed, ``waiting`` queued, ``done`` completed."""
    core.flow("typed")
    core.step("typed", "list", **options)
    core.map_step("typed", "each", "list")
    core.step("typed", "busy")
    core.step("typed", "waiting")
    core.step("typed", "done")
    run = core.start("typed", {})
    core.do(run, "done", 1)
    core.claim(run, "busy")
    return run


@pytest.mark.parametrize(("output", "kind"), TYPES, ids=[f"{i}-{kind}" for i, (_, kind) in enumerate(TYPES)])
def test_the_task_fails_with_its_output_and_the_type(core: Core, output: object, kind: str) -> None:
    run = before_a_map(core)
    core.claim(run, "list")
    before = core.task(run, "list")
    assert core.complete(run, "list", output) == [core.task(run, "list")]
    task = core.task(run, "list")
    assert {**task, "output": None} == before | {
        "status": "failed",
        "failed_at": core.value("select now()"),
        "error_message": f"[TYPE_VIOLATION] Produced {kind} instead of array",
    }
    stored = output if output is None or isinstance(output, Jsonb) else Jsonb(output)
    assert core.value(
        "select output is not distinct from %s::jsonb from pgflow.step_tasks where step_slug = 'list'", stored
    )


@pytest.mark.parametrize(("output", "kind"), TYPES, ids=[f"{i}-{kind}" for i, (_, kind) in enumerate(TYPES)])
def test_step_and_run_fail(core: Core, output: object, kind: str) -> None:
    run = before_a_map(core)
    core.claim(run, "list")
    core.complete(run, "list", output)
    now = core.value("select now()")
    state = core.state(run, "list")
    assert (state["status"], state["failed_at"], state["remaining_tasks"]) == ("failed", now, 1)
    assert (
        state["error_message"]
        == f"[TYPE_VIOLATION] Map step each expects array input but dependency list produced {kind}"
    )
    row = core.run(run)
    assert (row["status"], row["failed_at"], row["remaining_steps"]) == ("failed", now, 4)


def test_the_run_is_announced_before_the_step_and_without_an_error_text(core: Core) -> None:
    run = before_a_map(core)
    core.claim(run, "list")
    core.complete(run, "list", {})
    first, second = core.sent(run)[-2:]
    assert (first["event"], second["event"]) == ("run:failed", "step:list:failed")
    assert set(first["payload"]) == {"event_type", "run_id", "flow_slug", "status", "failed_at"}
    assert (
        second["payload"]["error_message"]
        == "[TYPE_VIOLATION] Map step each expects array input but dependency list produced object"
    )


@pytest.mark.parametrize("mode", ["fail", "skip", "skip-cascade"])
def test_it_is_a_hard_failure_whatever_the_mode_and_the_attempts_left(core: Core, mode: str) -> None:
    run = before_a_map(core, when_exhausted=mode, max_attempts=5)
    core.claim(run, "list")
    core.complete(run, "list", {})
    assert core.run(run)["status"] == "failed"
    assert core.states(run)["list"] == "failed"
    assert core.task(run, "list")["attempts_count"] == 1


def test_unfinished_tasks_are_cancelled(hardened: Core) -> None:
    run = before_a_map(hardened)
    before = hardened.task(run, "busy"), hardened.task(run, "waiting"), hardened.task(run, "done")
    hardened.claim(run, "list")
    hardened.complete(run, "list", {})
    busy, waiting, done = before
    assert hardened.task(run, "busy") == busy | {"status": "cancelled"}
    assert hardened.task(run, "waiting") == waiting | {"status": "cancelled"}
    assert hardened.task(run, "done") == done


def test_at_0_15_0_the_rows_of_sibling_tasks_stay(unhardened: Core) -> None:
    run = before_a_map(unhardened)
    before = [unhardened.task(run, step) for step in ("busy", "waiting", "done")]
    unhardened.claim(run, "list")
    unhardened.complete(run, "list", {})
    assert [unhardened.task(run, step) for step in ("busy", "waiting", "done")] == before


def test_the_messages_of_the_culprit_and_of_all_unfinished_tasks_are_archived(core: Core) -> None:
    run = before_a_map(core)
    core.claim(run, "list")
    core.complete(run, "list", {})
    assert core.queued("typed") == []
    assert core.archived("typed") == core.messages(run, "list", "busy", "waiting", "done")


def test_tasks_of_other_runs_are_not_touched(core: Core) -> None:
    run = before_a_map(core)
    other = core.start("typed", {})
    core.claim(run, "list")
    core.complete(run, "list", {})
    assert set(core.tasks(other).values()) == {"queued"}
    assert core.queued("typed") == core.messages(other, "list", "busy", "waiting", "done")


def test_the_map_and_the_other_steps_stay_as_they_were(core: Core) -> None:
    run = before_a_map(core)
    steps = ("each", "busy", "waiting", "done")
    before = [core.state(run, step) for step in steps]
    core.claim(run, "list")
    core.complete(run, "list", {})
    assert [core.state(run, step) for step in steps] == before
    assert core.states(run)["each"] == "created"
    assert core.value("select initial_tasks is null from pgflow.step_states where step_slug = 'each'") is True


def test_an_array_is_no_violation(core: Core) -> None:
    run = before_a_map(core)
    core.do(run, "list", [1])
    assert core.states(run)["each"] == "started"


def test_of_several_maps_one_is_named(core: Core) -> None:
    core.flow("typed")
    core.step("typed", "list")
    core.map_step("typed", "m1", "list")
    core.map_step("typed", "m2", "list")
    core.step("typed", "single", "list")
    run = core.start("typed", {})
    core.do(run, "list", "text")
    assert core.state(run, "list")["error_message"] in {
        f"[TYPE_VIOLATION] Map step {step} expects array input but dependency list produced string"
        for step in ("m1", "m2")
    }
    assert core.states(run) == {"list": "failed", "m1": "created", "m2": "created", "single": "created"}


def test_a_map_whose_task_count_is_known_does_not_count(core: Core) -> None:
    run = before_a_map(core)
    core.execute(
        "update pgflow.step_states set initial_tasks = 1 where run_id = %s and step_slug = 'each'", run
    )
    core.claim(run, "list")
    core.complete(run, "list", {"x": 1})
    assert core.states(run)["list"] == "completed"
    assert core.run(run)["status"] == "started"


def test_a_task_of_a_map_may_return_anything(core: Core) -> None:
    core.flow("typed")
    core.map_step("typed", "m1")
    core.map_step("typed", "m2", "m1")
    run = core.start("typed", [1])
    core.do(run, "m1", {"no": "array"})
    assert core.states(run) == {"m1": "completed", "m2": "started"}


def test_a_single_step_without_a_map_behind_it_may_return_anything(core: Core) -> None:
    core.flow("typed")
    core.step("typed", "first")
    core.step("typed", "second", "first")
    run = core.start("typed", {})
    core.do(run, "first", {"no": "array"})
    assert core.states(run) == {"first": "completed", "second": "started"}


def test_a_queued_task_triggers_the_violation_too(core: Core) -> None:
    """Whether the task was claimed is not looked at."""
    run = before_a_map(core)
    assert core.task(run, "list")["status"] == "queued"
    core.complete(run, "list", {"x": 1})
    task = core.task(run, "list")
    assert (task["status"], task["attempts_count"], task["started_at"]) == ("failed", 0, None)
    assert task["output"] == {"x": 1}
    assert core.states(run)["list"] == "failed"
    assert core.run(run)["status"] == "failed"
    assert core.queued("typed") == []


def test_an_index_that_does_not_exist_triggers_the_violation_too(core: Core) -> None:
    """Step and run fail, the result is empty, and the real task ends as a bystander."""
    run = before_a_map(core)
    core.claim(run, "list")
    assert core.complete(run, "list", {"x": 1}, index=9) == []
    assert core.states(run)["list"] == "failed"
    assert core.run(run)["status"] == "failed"
    assert core.events(run)[-2:] == ["run:failed", "step:list:failed"]
    assert core.task(run, "list")["status"] == ("cancelled" if core.hardened else "started")
    assert core.queued("typed") == []


def test_the_status_of_the_map_is_not_looked_at(core: Core) -> None:
    """A dependent map that a cascade skipped still has no task count."""
    run = before_a_map(core)
    core.execute("select pgflow._cascade_force_skip_steps(%s, 'each', 'by_hand')", run)
    core.claim(run, "list")
    core.complete(run, "list", {"x": 1})
    assert core.states(run)["list"] == "failed"
    assert core.states(run)["each"] == "skipped"
    assert core.run(run)["status"] == "failed"


def test_late_callbacks_after_the_violation_change_nothing(hardened: Core) -> None:
    run = before_a_map(hardened)
    hardened.claim(run, "list")
    hardened.complete(run, "list", {})
    before = hardened.everything("typed")
    hardened.complete(run, "busy", 1)
    hardened.fail(run, "busy")
    hardened.complete(run, "list", [1])
    hardened.fail(run, "list")
    assert hardened.everything("typed") == before
