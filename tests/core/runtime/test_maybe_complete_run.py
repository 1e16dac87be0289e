"""maybe_complete_run: when a run is over, and what it gives back."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID, uuid4

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core


def maybe_complete(core: Core, run: UUID) -> None:
    core.execute("select pgflow.maybe_complete_run(%s)", run)


def test_a_run_with_steps_left_stays_as_it_is(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    before = core.everything("plain")
    maybe_complete(core, run)
    assert core.everything("plain") == before


def test_an_unknown_run_is_ignored(core: Core) -> None:
    before = core.everything()
    maybe_complete(core, uuid4())
    assert core.everything() == before


def test_a_run_without_steps_left_completes(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    core.execute("update pgflow.runs set remaining_steps = 0 where run_id = %s", run)
    maybe_complete(core, run)
    row = core.run(run)
    assert (row["status"], row["completed_at"], row["failed_at"]) == (
        "completed",
        core.value("select now()"),
        None,
    )
    assert core.events(run)[-1] == "run:completed"


def test_the_output_has_a_key_for_each_completed_leaf(core: Core) -> None:
    core.flow("leaves")
    core.step("leaves", "root")
    core.step("leaves", "one", "root")
    core.step("leaves", "two", "root")
    core.step("leaves", "bare", "root")
    core.step("leaves", "skipped", required_input_pattern={"never": "there"})
    core.map_step("leaves", "each", "root")
    run = core.start("leaves", {})
    core.do(run, "root", [10, 20])
    core.do(run, "one", {"x": 1})
    core.do(run, "two", "text")
    core.do(run, "bare", None)
    core.do(run, "each", "b", 1)
    core.do(run, "each", "a", 0)
    row = core.run(run)
    assert row["status"] == "completed"
    assert row["output"] == {"one": {"x": 1}, "two": "text", "bare": None, "each": ["a", "b"]}
    assert core.sent(run)[-1]["payload"]["output"] == row["output"]


def test_with_no_completed_leaf_the_output_is_sql_null(core: Core) -> None:
    core.flow("leaves")
    core.step("leaves", "root")
    core.step("leaves", "leaf", "root", required_input_pattern={"never": "there"})
    run = core.start("leaves", {})
    core.do(run, "root", {"x": 1})
    assert core.run(run)["status"] == "completed"
    assert core.value("select output is null from pgflow.runs where run_id = %s", run) is True
    assert core.sent(run)[-1]["payload"]["output"] is None


def test_a_second_call_changes_nothing_and_sends_nothing(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    core.do(run, "first", 1)
    before = core.everything("plain")
    maybe_complete(core, run)
    assert core.everything("plain") == before
    assert core.events(run).count("run:completed") == 1


def test_a_failed_run_without_steps_left_violates_the_runs_table_and_since_dirty_runs_stays(
    core: Core,
) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    core.execute(
        "update pgflow.runs set status = 'failed', failed_at = now(), remaining_steps = 0 where run_id = %s",
        run,
    )
    before = core.everything("plain")
    if core.release == "dirty_runs":
        maybe_complete(core, run)
    else:
        with core.error() as caught:
            maybe_complete(core, run)
        assert caught.value.sqlstate == "23514"
        assert caught.value.diag.constraint_name == "completed_at_or_failed_at"
    assert core.everything("plain") == before
