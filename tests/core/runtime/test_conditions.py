"""cascade_resolve_conditions: what is tested against what; rounds of failing, skipping and cascading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pytest

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core

UNMET = {"never": "there"}


def resolve(core: Core, run: UUID) -> bool:
    result: bool = core.value("select pgflow.cascade_resolve_conditions(%s)", run)
    return result


def back_to_created(core: Core, run: UUID, *steps: str) -> None:
    """Let steps look as they did before start_ready_steps took them, their tasks gone."""
    core.execute("delete from pgflow.step_tasks where run_id = %s and step_slug = any (%s)", run, list(steps))
    core.execute(
        "update pgflow.step_states set status = 'created', started_at = null, remaining_tasks = null"
        " where run_id = %s and step_slug = any (%s)",
        run,
        list(steps),
    )


@pytest.mark.parametrize(
    ("required", "forbidden", "run_input", "met"),
    [
        ({"go": True}, None, {"go": True, "more": 1}, True),
        ({"go": True}, None, {"go": False}, False),
        ({"go": True}, None, {"more": 1}, False),
        ({"a": {"b": 1}}, None, {"a": {"b": 1, "c": 2}}, True),
        ({"a": {"b": 1}}, None, {"a": {"c": 2}}, False),
        ({"a": [2]}, None, {"a": [1, 2, 3]}, True),
        ({"a": {}}, None, {"a": {"b": 1}}, True),
        ({"a": {}}, None, {"a": None}, False),
        ({"a": {}}, None, {}, False),
        ({}, None, {}, True),
        (None, {"go": True}, {"go": True}, False),
        (None, {"go": True}, {"go": False}, True),
        (None, {"go": True}, {}, True),
        (None, {}, {}, False),
        ({"a": 1}, {"b": 1}, {"a": 1}, True),
        ({"a": 1}, {"b": 1}, {"a": 1, "b": 1}, False),
        ({"a": 1}, {"b": 1}, {}, False),
        ({}, None, [1, 2], False),
        ({"a": 1}, None, [{"a": 1}], False),
        (None, {}, [1, 2], True),
        (None, {"a": 1}, [{"a": 1}], True),
        ({"a": 1}, None, "a", False),
        (None, {"a": 1}, 1, True),
    ],
)
def test_a_root_step_is_tested_against_the_run_input_by_containment(
    core: Core, required: object, forbidden: object, run_input: object, met: bool
) -> None:
    core.flow("tested")
    core.step("tested", "root", required_input_pattern=required, forbidden_input_pattern=forbidden)
    run = core.start("tested", run_input)
    state = core.state(run, "root")
    assert (state["status"], state["skip_reason"]) == (
        ("started", None) if met else ("skipped", "condition_unmet")
    )


@pytest.mark.parametrize(
    ("required", "forbidden", "met"),
    [
        ({"a": {"ok": True}}, None, True),
        ({"a": {"ok": False}}, None, False),
        ({"b": {}}, None, False),
        ({"a": {}, "b": {}}, None, False),
        (None, {"b": {}}, True),
        (None, {"a": {"ok": True}}, False),
        ({"a": {"ok": True}}, {"b": {}}, True),
        ({"b": None}, None, False),
        (None, {"b": None}, True),
        ({"stranger": {}}, None, False),
        ({"a": {"other_run": True}}, None, False),
        ({"from_input": 1}, None, False),
        ({}, None, True),
    ],
)
def test_a_dependent_step_is_tested_against_the_outputs_of_its_completed_parents(
    core: Core, required: object, forbidden: object, met: bool
) -> None:
    """Parent ``b`` is skipped and has no key; neither has a step that is no parent, nor the run input."""
    core.flow("tested")
    core.step("tested", "a")
    core.step("tested", "b", required_input_pattern=UNMET)
    core.step("tested", "end", "a", "b", required_input_pattern=required, forbidden_input_pattern=forbidden)
    core.step("tested", "stranger")
    core.step("tested", "below_stranger", "stranger")
    core.do(core.start("tested", {}), "a", {"other_run": True})
    run = core.start("tested", {"from_input": 1})
    core.do(run, "stranger", {})
    core.do(run, "a", {"ok": True})
    assert core.states(run)["end"] == ("started" if met else "skipped")


@pytest.mark.parametrize(
    ("required", "forbidden", "met"),
    [({}, None, True), ({"a": {}}, None, False), (None, {"a": {}}, True), (None, {}, False)],
)
def test_with_no_parent_completed_the_tested_input_is_the_empty_object(
    core: Core, required: object, forbidden: object, met: bool
) -> None:
    core.flow("tested")
    core.step("tested", "a", required_input_pattern=UNMET)
    core.step("tested", "end", "a", required_input_pattern=required, forbidden_input_pattern=forbidden)
    run = core.start("tested", {})
    assert core.states(run) == {"a": "skipped", "end": "started" if met else "skipped"}


def test_a_completed_parent_without_output_has_a_null_key(core: Core) -> None:
    core.flow("tested")
    core.step("tested", "a")
    core.step("tested", "end", "a", required_input_pattern={"a": None})
    run = core.start("tested", {})
    core.do(run, "a", None)
    assert core.states(run) == {"a": "completed", "end": "started"}


def test_a_step_without_patterns_is_never_touched(core: Core) -> None:
    core.flow("free")
    core.step("free", "root", when_unmet="fail")
    run = core.start("free", {})
    back_to_created(core, run, "root")
    before = core.everything("free")
    assert resolve(core, run) is True
    assert core.everything("free") == before


def test_a_failed_run_gives_false_and_nothing_changes(core: Core) -> None:
    core.flow("over")
    core.step("over", "root", required_input_pattern={"go": True})
    run = core.start("over", {"go": True})
    back_to_created(core, run, "root")
    core.execute("update pgflow.runs set status = 'failed', failed_at = now(), input = '{}'")
    before = core.everything("over")
    assert resolve(core, run) is False
    assert core.everything("over") == before


def test_a_completed_run_gives_true_and_nothing_changes(core: Core) -> None:
    core.flow("over")
    core.step("over", "root", required_input_pattern={"go": True})
    run = core.start("over", {"go": True})
    back_to_created(core, run, "root")
    core.execute("update pgflow.runs set status = 'completed', completed_at = now(), input = '{}'")
    before = core.everything("over")
    assert resolve(core, run) is True
    assert core.everything("over") == before


def test_an_unknown_run_gives_true(core: Core) -> None:
    assert resolve(core, uuid4()) is True


def chain_of_skips(core: Core, length: int) -> None:
    core.flow("chain")
    core.step("chain", "s01", required_input_pattern=UNMET)
    for number in range(2, length + 1):
        parent = f"s{number - 1:02}"
        core.step("chain", f"s{number:02}", parent, required_input_pattern={parent: {}})


def test_a_chain_of_49_plain_skips_is_resolved(core: Core) -> None:
    chain_of_skips(core, 49)
    run = core.start("chain", {})
    assert set(core.states(run).values()) == {"skipped"}
    assert core.run(run)["status"] == "completed"
    assert core.events(run) == [
        "run:started",
        *(f"step:s{number:02}:skipped" for number in range(1, 50)),
        "run:completed",
    ]


def test_a_chain_of_50_plain_skips_exceeds_the_limit(core: Core) -> None:
    chain_of_skips(core, 50)
    before = core.everything("chain")
    with core.error() as caught:
        core.start("chain", {})
    assert caught.value.sqlstate == "P0001"
    assert (
        caught.value.diag.message_primary
        == "cascade_resolve_conditions exceeded safety limit of 50 iterations"
    )
    assert core.everything("chain") == before


def test_of_several_failing_steps_the_one_with_the_lowest_index_fails(core: Core) -> None:
    core.flow("strict")
    core.step("strict", "zz", required_input_pattern=UNMET, when_unmet="fail")
    core.step("strict", "aa", required_input_pattern=UNMET, when_unmet="fail")
    # Neither the order of the slugs nor that of the rows in the table helps.
    core.execute("update pgflow.steps set opt_timeout = 9 where step_slug = 'zz'")
    run = core.start("strict", {})
    assert core.states(run) == {"zz": "failed", "aa": "created"}


def test_plain_skips_of_one_round_release_their_dependents_together(core: Core) -> None:
    core.flow("fan")
    core.step("fan", "p1", required_input_pattern=UNMET)
    core.step("fan", "p2", required_input_pattern=UNMET)
    core.step("fan", "live")
    core.step("fan", "join", "p1", "p2", "live")
    core.step("fan", "free", "p1", "p2")
    run = core.start("fan", {})
    now = core.value("select now()")
    for slug in ("p1", "p2"):
        state = core.state(run, slug)
        assert (state["status"], state["skip_reason"], state["skipped_at"]) == (
            "skipped",
            "condition_unmet",
            now,
        )
        assert (state["started_at"], state["remaining_tasks"], state["initial_tasks"]) == (None, None, 1)
    assert core.state(run, "join")["remaining_deps"] == 1
    assert core.state(run, "free")["remaining_deps"] == 0
    assert core.states(run)["free"] == "started"
    assert core.run(run)["remaining_steps"] == 3
    events = core.events(run)
    assert events.count("step:p1:skipped") == 1
    assert events.count("step:p2:skipped") == 1


def test_a_map_behind_a_plain_skip_becomes_empty_and_completes(core: Core) -> None:
    core.flow("fan")
    core.step("fan", "p", required_input_pattern=UNMET)
    core.map_step("fan", "each", "p")
    run = core.start("fan", {})
    state = core.state(run, "each")
    assert (state["status"], state["initial_tasks"], state["output"]) == ("completed", 0, [])
    assert core.run(run)["output"] == {"each": []}


def test_a_map_that_directly_follows_a_skip_is_tested_before_it_completes_as_taskless(core: Core) -> None:
    core.flow("fan")
    core.step("fan", "p", required_input_pattern=UNMET)
    core.map_step("fan", "each", "p", required_input_pattern={"p": {}})
    run = core.start("fan", {})
    state = core.state(run, "each")
    assert (state["status"], state["skip_reason"], state["initial_tasks"]) == (
        "skipped",
        "condition_unmet",
        0,
    )
    assert core.value("select output is null from pgflow.runs where run_id = %s", run) is True


def test_skip_cascade_takes_all_transitive_dependents_along(core: Core) -> None:
    core.flow("tree")
    core.step("tree", "top", required_input_pattern=UNMET, when_unmet="skip-cascade")
    core.step("tree", "mid", "top")
    core.step("tree", "side")
    core.step("tree", "leaf", "mid", "side")
    run = core.start("tree", {})
    rows = core.rows(
        "select step_slug, status, skip_reason, remaining_deps from pgflow.step_states"
        " where run_id = %s order by step_slug",
        run,
    )
    assert [tuple(row.values()) for row in rows] == [
        ("leaf", "skipped", "dependency_skipped", 2),
        ("mid", "skipped", "dependency_skipped", 1),
        ("side", "started", None, 0),
        ("top", "skipped", "condition_unmet", 0),
    ]
    assert core.run(run)["remaining_steps"] == 1


def test_cascades_follow_the_step_index(core: Core) -> None:
    core.flow("tree")
    core.step("tree", "zz", required_input_pattern=UNMET, when_unmet="skip-cascade")
    core.step("tree", "aa", required_input_pattern=UNMET, when_unmet="skip-cascade")
    core.step("tree", "both", "aa", "zz")
    run = core.start("tree", {})
    events = core.events(run)
    assert sorted(events) == [
        "run:completed",
        "run:started",
        "step:aa:skipped",
        "step:both:skipped",
        "step:zz:skipped",
    ]
    assert events.index("step:aa:skipped") == 3
    assert core.state(run, "both")["skip_reason"] == "dependency_skipped"


def test_a_failing_step_that_is_ready_wins_over_skips_of_the_same_round(core: Core) -> None:
    core.flow("duel")
    core.step("duel", "skips", required_input_pattern=UNMET)
    core.step("duel", "cascades", required_input_pattern=UNMET, when_unmet="skip-cascade")
    core.step("duel", "fails", required_input_pattern=UNMET, when_unmet="fail")
    run = core.start("duel", {})
    assert core.states(run) == {"skips": "created", "cascades": "created", "fails": "failed"}
    assert core.run(run)["remaining_steps"] == 3


def test_a_failing_step_made_ready_by_a_skip_fails_the_run_after_the_skip(core: Core) -> None:
    core.flow("duel")
    core.step("duel", "skips", required_input_pattern=UNMET)
    core.step("duel", "fails", "skips", required_input_pattern={"skips": {}}, when_unmet="fail")
    run = core.start("duel", {})
    assert core.states(run) == {"skips": "skipped", "fails": "failed"}
    assert core.run(run)["status"] == "failed"
    assert core.run(run)["remaining_steps"] == 1
    assert core.events(run) == ["run:started", "step:skips:skipped", "step:fails:failed", "run:failed"]


def test_a_cascade_made_ready_by_a_skip_comes_before_a_failure_made_ready_by_it(core: Core) -> None:
    """Phase c sees what phase b of its round released; the failure waits for the next round."""
    core.flow("duel")
    core.step("duel", "skips", required_input_pattern=UNMET)
    core.step("duel", "fails", "skips", required_input_pattern=UNMET, when_unmet="fail")
    core.step("duel", "cascades", "skips", required_input_pattern=UNMET, when_unmet="skip-cascade")
    core.step("duel", "below", "cascades")
    run = core.start("duel", {})
    assert core.states(run) == {
        "skips": "skipped",
        "fails": "failed",
        "cascades": "skipped",
        "below": "skipped",
    }
    assert core.run(run)["remaining_steps"] == 1
    assert core.events(run)[-2:] == ["step:fails:failed", "run:failed"]


def failing_condition_among_others(core: Core) -> UUID:
    """``first`` and ``done`` are completed, ``busy`` is claimed, ``waiting`` queued; ``strict`` fails."""
    core.flow("strict")
    core.step("strict", "first")
    core.step("strict", "busy")
    core.step("strict", "waiting")
    core.step("strict", "done")
    core.step("strict", "strict", "first", required_input_pattern={"first": {"ok": True}}, when_unmet="fail")
    core.step("strict", "below", "strict")
    run = core.start("strict", {})
    core.do(run, "done", 1)
    core.claim(run, "busy")
    core.do(run, "first", {"ok": False})
    return run


def test_a_failed_condition_fails_step_and_run_without_a_task(core: Core) -> None:
    run = failing_condition_among_others(core)
    now = core.value("select now()")
    state = core.state(run, "strict")
    assert (state["status"], state["failed_at"], state["error_message"]) == (
        "failed",
        now,
        "Condition not met",
    )
    assert (state["started_at"], state["remaining_tasks"], state["initial_tasks"]) == (None, None, 1)
    row = core.run(run)
    assert (row["status"], row["failed_at"], row["completed_at"], row["output"]) == (
        "failed",
        now,
        None,
        None,
    )
    assert "strict/0" not in core.tasks(run)


def test_a_failed_condition_sends_the_step_then_the_run(core: Core) -> None:
    run = failing_condition_among_others(core)
    last, final = core.sent(run)[-2:]
    assert (last["event"], final["event"]) == ("step:strict:failed", "run:failed")
    assert last["payload"]["error_message"] == final["payload"]["error_message"] == "Condition not met"


def test_a_failed_condition_cancels_unfinished_tasks_and_archives_their_messages(hardened: Core) -> None:
    run = failing_condition_among_others(hardened)
    assert hardened.tasks(run) == {
        "first/0": "completed",
        "busy/0": "cancelled",
        "waiting/0": "cancelled",
        "done/0": "completed",
    }
    assert hardened.queued("strict") == []
    assert hardened.archived("strict") == hardened.messages(run, "first", "busy", "waiting", "done")


def test_at_0_15_0_a_failed_condition_archives_messages_and_leaves_task_rows(unhardened: Core) -> None:
    run = failing_condition_among_others(unhardened)
    assert unhardened.tasks(run) == {
        "first/0": "completed",
        "busy/0": "started",
        "waiting/0": "queued",
        "done/0": "completed",
    }
    assert unhardened.queued("strict") == []
    assert unhardened.archived("strict") == unhardened.messages(run, "first", "busy", "waiting", "done")


def test_a_failed_condition_leaves_the_counter_and_the_other_steps(core: Core) -> None:
    run = failing_condition_among_others(core)
    assert core.run(run)["remaining_steps"] == 4
    assert core.states(run) == {
        "first": "completed",
        "busy": "started",
        "waiting": "started",
        "done": "completed",
        "strict": "failed",
        "below": "created",
    }


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_skips_do_not_start_complete_or_finish_anything(core: Core, mode: str) -> None:
    core.flow("quiet")
    core.step("quiet", "skips", required_input_pattern={"go": True}, when_unmet=mode)
    run = core.start("quiet", {"go": True})
    back_to_created(core, run, "skips")
    core.execute("update pgflow.runs set input = '{}'")
    sent = len(core.sent(run))
    assert resolve(core, run) is True
    assert core.states(run) == {"skips": "skipped"}
    assert core.events(run)[sent:] == ["step:skips:skipped"]
    row = core.run(run)
    assert (row["status"], row["remaining_steps"]) == ("started", 0)


def test_dependents_of_a_skip_are_released_but_not_started(core: Core) -> None:
    core.flow("quiet")
    core.step("quiet", "skips", required_input_pattern={"go": True})
    core.map_step("quiet", "each", "skips")
    core.step("quiet", "single", "skips")
    run = core.start("quiet", {"go": True})
    back_to_created(core, run, "skips")
    core.execute("update pgflow.runs set input = '{}'")
    assert resolve(core, run) is True
    assert core.states(run) == {"skips": "skipped", "each": "created", "single": "created"}
    each, single = core.state(run, "each"), core.state(run, "single")
    assert (each["remaining_deps"], each["initial_tasks"]) == (0, 0)
    assert (single["remaining_deps"], single["initial_tasks"]) == (0, 1)


def test_a_skipped_parent_has_no_key_in_the_input_of_a_task(core: Core) -> None:
    core.flow("keys")
    core.step("keys", "a")
    core.step("keys", "b", required_input_pattern=UNMET)
    core.step("keys", "end", "a", "b")
    run = core.start("keys", {})
    core.do(run, "a", {"x": 1})
    (record,) = core.claim(run, "end")
    assert record["input"] == {"a": {"x": 1}}


def test_conditions_are_resolved_again_when_a_step_completes(core: Core) -> None:
    core.flow("later")
    core.step("later", "a")
    core.step("later", "b", "a", required_input_pattern={"a": {"go": True}}, when_unmet="skip-cascade")
    core.step("later", "c", "b")
    run = core.start("later", {})
    core.do(run, "a", {"go": False})
    assert core.states(run) == {"a": "completed", "b": "skipped", "c": "skipped"}
    row: dict[str, Any] = core.run(run)
    assert (row["status"], row["remaining_steps"], row["output"]) == ("completed", 0, None)
