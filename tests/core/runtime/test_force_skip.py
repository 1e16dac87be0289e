"""_cascade_force_skip_steps: a step and all that depends on it, whatever state it is in."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core


def skip(core: Core, run: UUID, step: str, reason: str = "by_hand") -> int:
    count: int = core.value("select pgflow._cascade_force_skip_steps(%s, %s, %s)", run, step, reason)
    return count


def abc(core: Core) -> UUID:
    """A chain of three, the first started."""
    core.flow("chain")
    core.step("chain", "step_a")
    core.step("chain", "step_b", "step_a")
    core.step("chain", "step_c", "step_b")
    return core.start("chain", {})


def test_an_unknown_run_is_an_error(core: Core) -> None:
    run = uuid4()
    with core.error() as caught:
        skip(core, run, "step_a")
    assert caught.value.sqlstate == "P0001"
    assert caught.value.diag.message_primary == f"Run not found: {run}"


def test_an_unknown_step_of_a_known_run_skips_nothing(core: Core) -> None:
    run = abc(core)
    before = core.everything("chain")
    assert skip(core, run, "absent") == 0
    assert core.everything("chain") == before


@pytest.mark.parametrize(("step", "count"), [("step_a", 3), ("step_b", 2), ("step_c", 1)])
def test_the_step_and_all_its_transitive_dependents_are_skipped(core: Core, step: str, count: int) -> None:
    run = abc(core)
    assert skip(core, run, step) == count
    skipped = ["step_a", "step_b", "step_c"][-count:]
    assert [slug for slug, status in sorted(core.states(run).items()) if status == "skipped"] == skipped
    assert core.run(run)["remaining_steps"] == 3 - count


def test_the_trigger_has_the_given_reason_and_the_others_dependency_skipped(core: Core) -> None:
    run = abc(core)
    skip(core, run, "step_a", "any text")
    now = core.value("select now()")
    rows = core.rows(
        "select step_slug, skip_reason, skipped_at, remaining_tasks, initial_tasks, remaining_deps,"
        " started_at from pgflow.step_states where run_id = %s order by step_slug",
        run,
    )
    assert [tuple(row.values()) for row in rows] == [
        ("step_a", "any text", now, None, 1, 0, now),
        ("step_b", "dependency_skipped", now, None, 1, 1, None),
        ("step_c", "dependency_skipped", now, None, 1, 1, None),
    ]


def test_terminal_steps_stay_and_their_created_dependents_are_skipped(core: Core) -> None:
    core.flow("mixed")
    core.step("mixed", "top")
    core.step("mixed", "left", "top")
    core.step("mixed", "right", "top")
    core.step("mixed", "end", "left", "right")
    run = core.start("mixed", {})
    core.do(run, "top", 1)
    core.do(run, "left", 2)
    before = core.state(run, "top"), core.state(run, "left")
    assert skip(core, run, "top") == 2
    assert (core.state(run, "top"), core.state(run, "left")) == before
    assert core.states(run) == {"top": "completed", "left": "completed", "right": "skipped", "end": "skipped"}
    assert core.state(run, "right")["skip_reason"] == "dependency_skipped"
    assert core.run(run)["remaining_steps"] == 0


def test_steps_outside_the_target_set_are_not_touched(core: Core) -> None:
    core.flow("mixed")
    core.step("mixed", "top")
    core.step("mixed", "other")
    core.step("mixed", "join", "top", "other")
    core.step("mixed", "below_other", "other")
    run = core.start("mixed", {})
    before = core.state(run, "other"), core.state(run, "below_other"), core.task(run, "other")
    assert skip(core, run, "top") == 2
    assert (core.state(run, "other"), core.state(run, "below_other"), core.task(run, "other")) == before
    assert core.queued("mixed") == core.messages(run, "other")


def test_one_event_is_sent_for_each_step_parents_first(core: Core) -> None:
    run = abc(core)
    skip(core, run, "step_a")
    assert core.events(run) == [
        "run:started",
        "step:step_a:started",
        "step:step_a:skipped",
        "step:step_b:skipped",
        "step:step_c:skipped",
    ]


def map_in_progress(core: Core) -> UUID:
    """A started map with a completed, a started and a queued task."""
    core.flow("mapped")
    core.map_step("mapped", "each")
    core.step("mapped", "after", "each")
    run = core.start("mapped", [1, 2, 3])
    core.do(run, "each", "one", 0)
    core.claim(run, "each", 1)
    return run


def test_unfinished_tasks_of_skipped_steps_become_skipped_and_their_messages_are_archived(
    hardened: Core,
) -> None:
    run = map_in_progress(hardened)
    before = {index: hardened.task(run, "each", index) for index in range(3)}
    assert skip(hardened, run, "each") == 2
    assert hardened.task(run, "each", 0) == before[0]
    assert hardened.task(run, "each", 1) == before[1] | {"status": "skipped"}
    assert hardened.task(run, "each", 2) == before[2] | {"status": "skipped"}
    assert hardened.queued("mapped") == []
    assert hardened.archived("mapped") == hardened.messages(run, "each")


def test_at_0_15_0_only_the_messages_are_archived(unhardened: Core) -> None:
    run = map_in_progress(unhardened)
    assert skip(unhardened, run, "each") == 2
    assert unhardened.tasks(run) == {"each/0": "completed", "each/1": "started", "each/2": "queued"}
    assert unhardened.queued("mapped") == []
    assert unhardened.archived("mapped") == unhardened.messages(run, "each")


def test_tasks_and_messages_of_a_step_skipped_before_are_not_touched(core: Core) -> None:
    run = abc(core)
    core.execute(
        "update pgflow.step_states set status = 'skipped', skip_reason = 'earlier', skipped_at = now(),"
        " remaining_tasks = null where run_id = %s and step_slug = 'step_a'",
        run,
    )
    assert skip(core, run, "step_a") == 2
    assert core.state(run, "step_a")["skip_reason"] == "earlier"
    assert core.tasks(run) == {"step_a/0": "queued"}
    assert core.queued("chain") == core.messages(run, "step_a")
    assert core.archived("chain") == []


def test_a_second_call_does_nothing(core: Core) -> None:
    run = abc(core)
    assert skip(core, run, "step_a") == 3
    before = core.everything("chain")
    assert skip(core, run, "step_a") == 0
    assert core.everything("chain") == before


def test_the_status_of_the_run_is_not_looked_at(core: Core) -> None:
    run = abc(core)
    core.execute("update pgflow.runs set status = 'failed', failed_at = now() where run_id = %s", run)
    assert skip(core, run, "step_b") == 2
    assert core.run(run)["remaining_steps"] == 1
    assert core.run(run)["status"] == "failed"


def test_nothing_is_started_and_the_run_is_not_finished(core: Core) -> None:
    run = abc(core)
    skip(core, run, "step_a")
    row = core.run(run)
    assert (row["status"], row["remaining_steps"], row["completed_at"]) == ("started", 0, None)
    assert "run:completed" not in core.events(run)
