"""The realtime events: names, topics, exact payloads, and what sends none."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from tests.moments import moment

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core, Sessions

UNMET = {"never": "there"}


def payload(core: Core, run: UUID, event: str) -> dict[str, Any]:
    """The payload of the one event of that name, its moment parsed."""
    (message,) = [message for message in core.sent(run) if message["event"] == event]
    body: dict[str, Any] = dict(message["payload"])
    return {key: moment(value) if key.endswith("_at") and value else value for key, value in body.items()}


def now(core: Core) -> datetime:
    at: datetime = core.value("select now()")
    return at


def test_every_event_is_public_and_goes_to_the_topic_of_its_run(core: Core) -> None:
    core.flow("plain", max_attempts=1)
    core.step("plain", "first")
    core.step("plain", "second", "first")
    done, failed = core.start("plain", {}), core.start("plain", {})
    core.do(done, "first", 1)
    core.do(done, "second", 1)
    core.break_(failed, "first")
    rows = core.rows("select event, topic, private from realtime.messages order by id")
    assert {(row["topic"], row["private"]) for row in rows} == {
        (f"pgflow:run:{done}", False),
        (f"pgflow:run:{failed}", False),
    }
    assert len(rows) == len(core.events(done)) + len(core.events(failed)) == 10


def test_run_started(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {"k": [1]})
    assert payload(core, run, "run:started") == {
        "event_type": "run:started",
        "run_id": str(run),
        "flow_slug": "plain",
        "input": {"k": [1]},
        "status": "started",
        "remaining_steps": 1,
        "started_at": now(core),
    }


def test_step_started(core: Core) -> None:
    core.flow("plain")
    core.map_step("plain", "each")
    run = core.start("plain", [1, 2])
    assert payload(core, run, "step:each:started") == {
        "event_type": "step:started",
        "run_id": str(run),
        "step_slug": "each",
        "status": "started",
        "started_at": now(core),
        "remaining_tasks": 2,
        "remaining_deps": 0,
    }


def test_step_completed_by_a_task(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    core.do(run, "first", {"x": 1})
    assert payload(core, run, "step:first:completed") == {
        "event_type": "step:completed",
        "run_id": str(run),
        "step_slug": "first",
        "status": "completed",
        "output": {"x": 1},
        "completed_at": now(core),
    }


def test_step_completed_without_output_has_a_json_null(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    core.do(run, "first", None)
    body = payload(core, run, "step:first:completed")
    assert body["output"] is None
    assert payload(core, run, "run:completed")["output"] == {"first": None}


def test_step_completed_without_a_task(core: Core) -> None:
    core.flow("plain")
    core.map_step("plain", "each")
    run = core.start("plain", [])
    assert payload(core, run, "step:each:completed") == {
        "event_type": "step:completed",
        "run_id": str(run),
        "step_slug": "each",
        "status": "completed",
        "started_at": now(core),
        "completed_at": now(core),
        "remaining_tasks": 0,
        "remaining_deps": 0,
        "output": [],
    }


def test_run_completed(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    run = core.start("plain", {})
    core.do(run, "first", {"x": 1})
    assert payload(core, run, "run:completed") == {
        "event_type": "run:completed",
        "run_id": str(run),
        "flow_slug": "plain",
        "status": "completed",
        "output": {"first": {"x": 1}},
        "completed_at": now(core),
    }


def test_step_failed_and_run_failed_by_an_exhausted_task(core: Core) -> None:
    core.flow("plain", max_attempts=1)
    core.step("plain", "first")
    run = core.start("plain", {})
    core.break_(run, "first", "the end")
    assert payload(core, run, "step:first:failed") == {
        "event_type": "step:failed",
        "run_id": str(run),
        "step_slug": "first",
        "status": "failed",
        "error_message": "the end",
        "failed_at": now(core),
    }
    assert payload(core, run, "run:failed") == {
        "event_type": "run:failed",
        "run_id": str(run),
        "flow_slug": "plain",
        "status": "failed",
        "error_message": "the end",
        "failed_at": now(core),
    }


def test_step_failed_and_run_failed_by_a_condition(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first", required_input_pattern=UNMET, when_unmet="fail")
    run = core.start("plain", {})
    assert payload(core, run, "step:first:failed") == {
        "event_type": "step:failed",
        "run_id": str(run),
        "step_slug": "first",
        "status": "failed",
        "error_message": "Condition not met",
        "failed_at": now(core),
    }
    assert payload(core, run, "run:failed") == {
        "event_type": "run:failed",
        "run_id": str(run),
        "flow_slug": "plain",
        "status": "failed",
        "error_message": "Condition not met",
        "failed_at": now(core),
    }


def test_step_failed_and_run_failed_by_a_type_violation(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "list")
    core.map_step("plain", "each", "list")
    run = core.start("plain", {})
    core.do(run, "list", 5)
    assert payload(core, run, "step:list:failed") == {
        "event_type": "step:failed",
        "run_id": str(run),
        "step_slug": "list",
        "status": "failed",
        "error_message": "[TYPE_VIOLATION] Map step each expects array input"
        " but dependency list produced number",
        "failed_at": now(core),
    }
    assert payload(core, run, "run:failed") == {
        "event_type": "run:failed",
        "run_id": str(run),
        "flow_slug": "plain",
        "status": "failed",
        "failed_at": now(core),
    }


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_step_skipped_by_a_condition(core: Core, mode: str) -> None:
    core.flow("plain")
    core.step("plain", "first", required_input_pattern=UNMET, when_unmet=mode)
    run = core.start("plain", {})
    assert payload(core, run, "step:first:skipped") == {
        "event_type": "step:skipped",
        "run_id": str(run),
        "flow_slug": "plain",
        "step_slug": "first",
        "status": "skipped",
        "skip_reason": "condition_unmet",
        "skipped_at": now(core),
    }


def test_step_skipped_below_a_cascade(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first", required_input_pattern=UNMET, when_unmet="skip-cascade")
    core.step("plain", "second", "first")
    run = core.start("plain", {})
    assert payload(core, run, "step:second:skipped") == {
        "event_type": "step:skipped",
        "run_id": str(run),
        "flow_slug": "plain",
        "step_slug": "second",
        "status": "skipped",
        "skip_reason": "dependency_skipped",
        "skipped_at": now(core),
    }


@pytest.mark.parametrize("mode", ["skip", "skip-cascade"])
def test_step_skipped_by_an_exhausted_task(core: Core, mode: str) -> None:
    core.flow("plain", max_attempts=1)
    core.step("plain", "first", when_exhausted=mode)
    core.step("plain", "second", "first")
    run = core.start("plain", {})
    core.break_(run, "first", "the end")
    assert payload(core, run, "step:first:skipped") == {
        "event_type": "step:skipped",
        "run_id": str(run),
        "step_slug": "first",
        "status": "skipped",
        "skip_reason": "handler_failed",
        "error_message": "the end",
        "skipped_at": now(core),
    }


def test_changes_of_single_tasks_send_nothing(core: Core) -> None:
    core.flow("mapped", max_attempts=2)
    core.map_step("mapped", "each")
    run = core.start("mapped", [1, 2, 3])
    before = core.events(run)
    core.claim(run, "each", 0)
    core.fail(run, "each", index=0)
    core.claim(run, "each", 1)
    core.age(run, "each", 1000, 1)
    assert core.requeue() == 1
    core.do(run, "each", 1, 2)
    assert core.events(run) == before


def test_an_error_of_the_receiver_aborts_the_caller(core: Core) -> None:
    core.flow("plain")
    core.step("plain", "first")
    core.execute(
        "alter table realtime.messages add constraint silent check (event <> 'step:first:completed')"
    )
    run = core.start("plain", {})
    core.claim(run, "first")
    before = core.everything("plain")
    with core.error() as caught:
        core.complete(run, "first", 1)
    assert caught.value.sqlstate == "23514"
    assert core.everything("plain") == before


def test_an_event_is_sent_after_the_change_that_it_reports(core: Core) -> None:
    """A trigger on the receiving table notes the status that the row has at that moment."""
    core.execute("create temporary table seen (event text, status text)")
    core.execute(
        """
        create function pg_temp.look() returns trigger language plpgsql as $$
        begin
          insert into seen
          select new.event, case
            when new.event like 'run:%' then
              (select status from pgflow.runs where run_id = (new.payload ->> 'run_id')::uuid)
            else
              (select status from pgflow.step_states where run_id = (new.payload ->> 'run_id')::uuid
               and step_slug = new.payload ->> 'step_slug')
            end;
          return new;
        end $$"""
    )
    core.execute(
        "create trigger look before insert on realtime.messages for each row execute function pg_temp.look()"
    )
    core.flow("grand", max_attempts=1)
    core.step("grand", "list")
    core.map_step("grand", "hollow", "list")
    core.step("grand", "unmet", "list", required_input_pattern=UNMET)
    core.step("grand", "cascade", "list", required_input_pattern=UNMET, when_unmet="skip-cascade")
    core.step("grand", "soft", when_exhausted="skip")
    core.step("grand", "hard")
    run = core.start("grand", {})
    core.do(run, "list", [])
    core.break_(run, "soft")
    core.break_(run, "hard")
    core.flow("tiny")
    core.map_step("tiny", "each")
    core.start("tiny", [])
    core.flow("typed")
    core.step("typed", "list")
    core.map_step("typed", "each", "list")
    core.do(core.start("typed", {}), "list", 1)
    seen = [(row["event"], row["status"]) for row in core.rows("select event, status from seen")]
    assert len(seen) == 18
    assert [event.rpartition(":")[2] for event, _ in seen] == [status for _, status in seen]


def test_replayed_and_late_calls_repeat_no_event(core: Core) -> None:
    core.flow("grand", max_attempts=1)
    core.step("grand", "soft", when_exhausted="skip")
    core.step("grand", "side")
    core.step("grand", "hard")
    run = core.start("grand", {})
    core.claim(run, "side")
    core.break_(run, "soft")
    core.break_(run, "hard")
    for _ in range(3):
        for step in ("soft", "side", "hard"):
            core.fail(run, step)
            core.complete(run, step, 1)
        core.execute("select pgflow.maybe_complete_run(%s)", run)
        core.execute("select pgflow.start_ready_steps(%s)", run)
    assert core.events(run) == [
        "run:started",
        *core.events(run)[1:4],
        "step:soft:skipped",
        "step:hard:failed",
        "run:failed",
    ]
    assert sorted(core.events(run)[1:4]) == ["step:hard:started", "step:side:started", "step:soft:started"]


def test_all_changes_of_one_call_carry_the_time_of_its_transaction(sessions: Sessions) -> None:
    (session,) = sessions("core_0_16_0", 1)
    session.flow("grand")
    session.step("grand", "list")
    session.map_step("grand", "hollow", "list")
    session.step("grand", "unmet", "list", required_input_pattern=UNMET)
    session.step("grand", "next", "list")
    run = session.start("grand", {})
    session.claim(run, "list")
    with session.transaction():
        moment = session.value("select now()")
        session.complete(run, "list", [])
    assert session.task(run, "list")["completed_at"] == moment
    assert session.state(run, "list")["completed_at"] == moment
    hollow = session.state(run, "hollow")
    assert hollow["started_at"] == hollow["completed_at"] == moment
    assert session.state(run, "unmet")["skipped_at"] == moment
    assert session.state(run, "next")["started_at"] == moment
    assert session.task(run, "next")["queued_at"] == moment


def test_the_moments_of_a_run_follow_each_other(sessions: Sessions) -> None:
    (session,) = sessions("core_0_16_0", 1)
    session.flow("pair")
    session.step("pair", "first")
    session.step("pair", "second", "first")
    run = session.start("pair", {})
    assert session.state(run, "second")["started_at"] is None
    for step in ("first", "second"):
        session.do(run, step, 1)
    whole, first, second = session.run(run), session.state(run, "first"), session.state(run, "second")
    task = session.task(run, "first")
    assert whole["started_at"] == first["created_at"] == first["started_at"] == task["queued_at"]
    assert task["queued_at"] < task["started_at"] < task["completed_at"] == first["completed_at"]
    assert first["completed_at"] == second["started_at"] < second["completed_at"] == whole["completed_at"]
    assert whole["failed_at"] is None
