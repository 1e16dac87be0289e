"""complete_task: guards against late callbacks, counting down, aggregation, and what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import pytest
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core


def two_steps(core: Core, **options: object) -> UUID:
    core.flow("pair")
    core.step("pair", "first", **options)
    core.step("pair", "second", "first")
    return core.start("pair", {})


def mapped(core: Core, elements: list[object], **options: object) -> UUID:
    core.flow("mapped")
    core.map_step("mapped", "each", **options)
    core.step("mapped", "after", "each")
    return core.start("mapped", elements)


# -- result and guards


def test_the_task_row_is_returned_as_it_is_at_the_end(core: Core) -> None:
    run = two_steps(core)
    core.claim(run, "first")
    assert core.complete(run, "first", {"x": 1}) == [core.task(run, "first")]


def test_a_replay_returns_the_row_of_the_first_completion(core: Core) -> None:
    run = two_steps(core)
    core.do(run, "first", "first output")
    before = core.everything("pair")
    assert core.complete(run, "first", "second output") == [core.task(run, "first")]
    assert core.task(run, "first")["output"] == "first output"
    assert core.everything("pair") == before


def test_on_a_failed_run_nothing_changes_and_nothing_is_archived(core: Core) -> None:
    run = two_steps(core)
    core.claim(run, "first")
    core.execute("update pgflow.runs set status = 'failed', failed_at = now() where run_id = %s", run)
    before = core.everything("pair")
    assert core.complete(run, "first", 1) == [core.task(run, "first")]
    assert core.everything("pair") == before
    assert core.queued("pair") == core.messages(run, "first")


@pytest.mark.parametrize(
    "change",
    [
        "status = 'skipped', skip_reason = 'x', skipped_at = now(), remaining_tasks = null",
        "status = 'failed', failed_at = now()",
        "status = 'completed', completed_at = now(), remaining_tasks = 0",
        "status = 'created', started_at = null, remaining_tasks = null",
    ],
    ids=["skipped", "failed", "completed", "created"],
)
def test_a_step_that_is_not_started_only_has_its_message_archived(core: Core, change: str) -> None:
    run = two_steps(core)
    core.claim(run, "first")
    core.execute(f"update pgflow.step_states set {change} where run_id = %s and step_slug = 'first'", run)
    before = core.everything()
    assert core.complete(run, "first", 1) == [core.task(run, "first")]
    assert core.everything() == before
    assert core.queued("pair") == []
    assert core.archived("pair") == core.messages(run, "first")


def test_a_late_completion_of_a_skipped_step_changes_no_counter(core: Core) -> None:
    run = mapped(core, [1, 2], max_attempts=1, when_exhausted="skip")
    core.claim(run, "each", 0)
    core.break_(run, "each", index=1)
    assert core.states(run) == {"each": "skipped", "after": "started"}
    before = core.everything("mapped")
    core.complete(run, "each", "late", 0)
    assert core.everything("mapped") == before


def test_an_unknown_run_step_or_index_gives_no_row_and_no_error(core: Core) -> None:
    run = two_steps(core)
    core.claim(run, "first")
    before = core.everything("pair")
    assert core.complete(uuid4(), "first", 1) == []
    assert core.complete(run, "absent", 1) == []
    assert core.complete(run, "first", 1, index=5) == []
    assert core.everything("pair") == before


def test_a_queued_task_is_left_alone_and_its_message_stays(core: Core) -> None:
    run = two_steps(core)
    before = core.everything("pair")
    assert core.complete(run, "first", 1) == [core.task(run, "first")]
    assert core.everything("pair") == before


def test_a_completed_task_of_a_started_map_keeps_its_first_output(core: Core) -> None:
    run = mapped(core, [1, 2])
    core.do(run, "each", "first", 0)
    before = core.everything("mapped")
    assert core.complete(run, "each", "second", 0) == [core.task(run, "each", 0)]
    assert core.everything("mapped") == before
    assert core.archived("mapped") == [core.task(run, "each", 0)["message_id"]]


@pytest.mark.parametrize("status", ["failed", "skipped", "cancelled"])
def test_a_task_that_ended_otherwise_is_left_alone(hardened: Core, status: str) -> None:
    run = mapped(hardened, [1, 2])
    hardened.execute("update pgflow.step_tasks set status = %s where run_id = %s", status, run)
    before = hardened.everything()
    assert hardened.complete(run, "each", 1, 0) == [hardened.task(run, "each", 0)]
    assert hardened.everything() == before


def test_a_not_started_task_still_lets_ready_steps_start(core: Core) -> None:
    """start_ready_steps and maybe_complete_run run whether or not anything was completed."""
    run = two_steps(core)
    core.execute(
        "update pgflow.step_states set remaining_deps = 0 where run_id = %s and step_slug = 'second'", run
    )
    core.complete(run, "first", 1)
    assert core.task(run, "first")["status"] == "queued"
    assert core.states(run) == {"first": "started", "second": "started"}


# -- normal completion


def test_a_started_task_becomes_completed_and_keeps_its_past(core: Core) -> None:
    run = two_steps(core)
    core.break_(run, "first", "first attempt")
    core.claim(run, "first")
    before = core.task(run, "first")
    assert (before["attempts_count"], before["error_message"]) == (2, "first attempt")
    core.complete(run, "first", {"x": 1})
    assert core.task(run, "first") == before | {
        "status": "completed",
        "output": {"x": 1},
        "completed_at": core.value("select now()"),
    }


@pytest.mark.parametrize("output", [{"x": 1}, [1, 2], "text", 0, False])
def test_a_single_step_stores_the_output_of_its_task(core: Core, output: object) -> None:
    run = two_steps(core)
    core.do(run, "first", output)
    state = core.state(run, "first")
    assert (state["status"], state["remaining_tasks"], state["output"]) == ("completed", 0, output)
    assert state["completed_at"] == core.value("select now()")


def test_sql_null_and_json_null_outputs_stay_apart(core: Core) -> None:
    core.flow("nulls")
    core.step("nulls", "sql_null")
    core.step("nulls", "json_null")
    run = core.start("nulls", {})
    core.do(run, "sql_null", None)
    core.do(run, "json_null", Jsonb(None))
    rows = core.rows(
        "select step_slug, jsonb_typeof(output) as kind from pgflow.step_states where run_id = %s order by 1",
        run,
    )
    assert [tuple(row.values()) for row in rows] == [("json_null", "null"), ("sql_null", None)]


def test_a_map_aggregates_by_index_whatever_the_order_of_completion(core: Core) -> None:
    run = mapped(core, ["a", "b", "c", "d"])
    for index, output in ((2, "two"), (0, {"zero": 0}), (3, None)):
        core.do(run, "each", output, index)
        assert core.state(run, "each")["status"] == "started"
    assert core.state(run, "each")["remaining_tasks"] == 1
    core.do(run, "each", [1], 1)
    state = core.state(run, "each")
    assert (state["status"], state["remaining_tasks"]) == ("completed", 0)
    assert state["output"] == [{"zero": 0}, [1], "two", None]


def test_a_map_of_one_task_gives_an_array_of_one_element(core: Core) -> None:
    run = mapped(core, ["a"])
    core.do(run, "each", [1, 2])
    assert core.state(run, "each")["output"] == [[1, 2]]


def test_an_intermediate_completion_of_a_map_changes_no_dependent(core: Core) -> None:
    run = mapped(core, ["a", "b"])
    before = core.state(run, "after"), core.run(run), core.events(run)
    core.do(run, "each", 1, 0)
    assert (core.state(run, "after"), core.run(run), core.events(run)) == before


def test_a_completed_step_releases_its_dependents_and_counts_the_run_down(core: Core) -> None:
    core.flow("fan")
    core.step("fan", "first")
    core.step("fan", "other")
    core.step("fan", "next", "first")
    core.step("fan", "join", "first", "other")
    run = core.start("fan", {})
    core.do(run, "first", 1)
    assert core.run(run)["remaining_steps"] == 3
    assert core.state(run, "next")["remaining_deps"] == 0
    assert core.state(run, "join")["remaining_deps"] == 1
    assert core.states(run) == {
        "first": "completed",
        "other": "started",
        "next": "started",
        "join": "created",
    }


def test_dependents_are_counted_down_whatever_their_status(core: Core) -> None:
    core.flow("fan")
    core.step("fan", "first")
    core.step("fan", "gone", required_input_pattern={"never": "there"}, when_unmet="skip-cascade")
    core.step("fan", "join", "first", "gone")
    run = core.start("fan", {})
    assert (core.states(run)["join"], core.state(run, "join")["remaining_deps"]) == ("skipped", 2)
    core.do(run, "first", 1)
    assert (core.states(run)["join"], core.state(run, "join")["remaining_deps"]) == ("skipped", 1)


def test_a_dependent_map_gets_the_length_of_the_array(core: Core) -> None:
    core.flow("mapped")
    core.step("mapped", "list")
    core.map_step("mapped", "each", "list")
    run = core.start("mapped", {})
    assert core.value("select initial_tasks is null from pgflow.step_states where step_slug = 'each'") is True
    core.do(run, "list", [1, [2, 3], None])
    state = core.state(run, "each")
    assert (state["initial_tasks"], state["remaining_tasks"], state["status"]) == (3, 3, "started")


def test_a_map_behind_a_map_gets_the_number_of_its_tasks(core: Core) -> None:
    core.flow("mapped")
    core.map_step("mapped", "each")
    core.map_step("mapped", "again", "each")
    run = core.start("mapped", [1, 2])
    core.do(run, "each", [9, 9, 9], 0)
    assert (
        core.value("select initial_tasks is null from pgflow.step_states where step_slug = 'again'") is True
    )
    core.do(run, "each", "not an array", 1)
    assert core.state(run, "again")["initial_tasks"] == 2
    assert core.tasks(run, "again") == {"again/0": "queued", "again/1": "queued"}


def test_a_map_whose_task_count_is_known_keeps_it(core: Core) -> None:
    core.flow("mapped")
    core.step("mapped", "list")
    core.map_step("mapped", "each", "list")
    run = core.start("mapped", {})
    core.execute("update pgflow.step_states set initial_tasks = 2 where step_slug = 'each'")
    core.do(run, "list", [1, 2, 3])
    assert core.state(run, "each")["initial_tasks"] == 2


def test_exactly_the_completed_message_is_archived(core: Core) -> None:
    run = mapped(core, ["a", "b", "c"])
    core.do(run, "each", 1, 1)
    messages = core.messages(run, "each")
    assert core.archived("mapped") == [messages[1]]
    assert core.queued("mapped") == [messages[0], messages[2]]


def test_a_condition_that_fails_the_run_leaves_the_task_completed_and_archived(core: Core) -> None:
    core.flow("strict")
    core.step("strict", "first")
    core.step("strict", "side")
    core.step("strict", "after", "first", required_input_pattern={"never": "there"}, when_unmet="fail")
    run = core.start("strict", {})
    core.claim(run, "first")
    assert core.complete(run, "first", 1) == [core.task(run, "first")]
    assert core.tasks(run) == {"first/0": "completed", "side/0": "cancelled" if core.hardened else "queued"}
    assert core.states(run) == {"first": "completed", "side": "started", "after": "failed"}
    assert core.queued("strict") == []
    assert core.archived("strict") == core.messages(run, "first", "side")
    row = core.run(run)
    assert (row["status"], row["remaining_steps"]) == ("failed", 2)
    assert core.events(run)[-3:] == ["step:first:completed", "step:after:failed", "run:failed"]


def test_the_last_step_completes_the_run(core: Core) -> None:
    run = two_steps(core)
    core.do(run, "first", 1)
    assert core.run(run)["status"] == "started"
    core.do(run, "second", {"done": True})
    row = core.run(run)
    assert (row["status"], row["remaining_steps"], row["output"]) == (
        "completed",
        0,
        {"second": {"done": True}},
    )
    assert row["completed_at"] == core.value("select now()")
    assert core.queued("pair") == []
    assert core.archived("pair") == core.messages(run, "first", "second")


def test_events_come_in_order_own_conditions_taskless_by_wave_starts_and_the_run(core: Core) -> None:
    core.flow("grand")
    core.step("grand", "list")
    core.step("grand", "unmet", "list", required_input_pattern={"never": "there"})
    core.map_step("grand", "m_late", "list")
    core.map_step("grand", "a_later", "m_late")
    core.step("grand", "next", "list")
    run = core.start("grand", {})
    core.do(run, "list", [])
    assert core.events(run) == [
        "run:started",
        "step:list:started",
        "step:list:completed",
        "step:unmet:skipped",
        "step:m_late:completed",
        "step:a_later:completed",
        "step:next:started",
    ]
    core.do(run, "next", 1)
    assert core.events(run)[-2:] == ["step:next:completed", "run:completed"]


def test_step_completed_carries_the_stored_output(core: Core) -> None:
    run = mapped(core, ["a", "b"])
    core.do(run, "each", "two", 1)
    core.do(run, "each", "one", 0)
    (message,) = [message for message in core.sent(run) if message["event"] == "step:each:completed"]
    assert message["payload"]["output"] == core.state(run, "each")["output"] == ["one", "two"]


def test_a_chain_of_ten_maps_hands_its_elements_through(core: Core) -> None:
    core.flow("chain")
    core.map_step("chain", "m0")
    for number in range(1, 10):
        core.map_step("chain", f"m{number}", f"m{number - 1}")
    run = core.start("chain", [1, 2, 3])
    for _ in range(10):
        for record in core.start_tasks("chain", core.read("chain")):
            core.complete(run, record["step_slug"], record["input"] + 1, record["task_index"])
    assert core.run(run)["output"] == {"m9": [11, 12, 13]}


# -- callbacks without fencing


def test_a_completion_after_a_requeue_is_ignored(core: Core) -> None:
    run = two_steps(core)
    core.claim(run, "first")
    core.age(run, "first", 1000)
    assert core.requeue() == 1
    before = core.everything("pair")
    assert core.complete(run, "first", "late") == [core.task(run, "first")]
    assert core.everything("pair") == before


def test_a_completion_by_the_old_worker_after_a_new_claim_is_accepted(core: Core) -> None:
    run = two_steps(core)
    core.claim(run, "first")
    core.age(run, "first", 1000)
    core.requeue()
    other = core.worker(UUID("22222222-2222-2222-2222-222222222222"))
    core.start_tasks("pair", [core.task(run, "first")["message_id"]], other)
    core.complete(run, "first", "from the old worker")
    task = core.task(run, "first")
    assert (task["status"], task["output"], task["last_worker_id"]) == (
        "completed",
        "from the old worker",
        other,
    )


def test_a_late_completion_of_a_permanently_stalled_task_succeeds(core: Core) -> None:
    run = two_steps(core)
    core.claim(run, "first")
    core.execute("update pgflow.step_tasks set requeued_count = 3 where run_id = %s", run)
    core.age(run, "first", 1000)
    assert core.requeue() == 0
    stalled_at = core.task(run, "first")["permanently_stalled_at"]
    assert stalled_at == core.value("select now()")
    core.complete(run, "first", "late")
    task = core.task(run, "first")
    assert (task["status"], task["output"], task["permanently_stalled_at"]) == (
        "completed",
        "late",
        stalled_at,
    )
    assert core.states(run) == {"first": "completed", "second": "started"}


def test_extra_calls_of_start_ready_steps_are_harmless(core: Core) -> None:
    run = mapped(core, ["a", "b"])
    core.do(run, "each", 1, 0)
    before = core.everything("mapped")
    core.execute("select pgflow.start_ready_steps(%s)", run)
    assert core.everything("mapped") == before
