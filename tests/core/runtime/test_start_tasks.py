"""start_tasks: which tasks are claimed, with which input, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core

OTHER_WORKER = UUID("22222222-2222-2222-2222-222222222222")


def plain(core: Core, run_input: object = None, **options: object) -> UUID:
    core.flow("plain")
    core.step("plain", "first", **options)
    return core.start("plain", {} if run_input is None else run_input)


def test_a_claim_starts_the_task(core: Core) -> None:
    run = plain(core)
    before = core.task(run, "first")
    (record,) = core.claim(run, "first")
    assert core.task(run, "first") == before | {
        "status": "started",
        "attempts_count": 1,
        "started_at": core.value("select now()"),
        "last_worker_id": UUID("11111111-1111-1111-1111-111111111111"),
    }
    assert record == {
        "flow_slug": "plain",
        "run_id": run,
        "step_slug": "first",
        "input": {},
        "msg_id": before["message_id"],
        "task_index": 0,
        "flow_input": {},
    }


def test_a_new_claim_counts_another_attempt_and_keeps_the_old_error(core: Core) -> None:
    run = plain(core)
    core.break_(run, "first", "first attempt")
    assert len(core.claim(run, "first")) == 1
    task = core.task(run, "first")
    assert (task["status"], task["attempts_count"], task["error_message"]) == ("started", 2, "first attempt")


def test_a_claim_sends_no_event_and_changes_no_step_or_run(core: Core) -> None:
    run = plain(core)
    before = core.run(run), core.state(run, "first"), core.events(run)
    core.claim(run, "first")
    assert (core.run(run), core.state(run, "first"), core.events(run)) == before


@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_task_of_a_finished_run_is_no_candidate(core: Core, status: str) -> None:
    run = plain(core)
    core.execute(f"update pgflow.runs set status = '{status}', {status}_at = now() where run_id = %s", run)
    before = core.task(run, "first")
    assert core.claim(run, "first") == []
    assert core.task(run, "first") == before


def test_a_task_of_a_step_that_is_not_started_is_no_candidate(core: Core) -> None:
    run = plain(core)
    core.execute(
        "update pgflow.step_states set status = 'skipped', skip_reason = 'x', skipped_at = now(),"
        " remaining_tasks = null where run_id = %s",
        run,
    )
    before = core.task(run, "first")
    assert core.claim(run, "first") == []
    assert core.task(run, "first") == before


@pytest.mark.parametrize("status", ["started", "completed", "failed"])
def test_a_task_that_is_not_queued_is_no_candidate(core: Core, status: str) -> None:
    run = plain(core)
    core.execute("update pgflow.step_tasks set status = %s where run_id = %s", status, run)
    before = core.task(run, "first")
    assert core.claim(run, "first") == []
    assert core.task(run, "first") == before


@pytest.mark.parametrize(
    ("flow_timeout", "step_timeout", "seconds"), [(60, 10, 12), (60, 300, 302), (7, None, 9)]
)
@pytest.mark.parametrize("read_for", [30, 3600])
def test_the_message_stays_invisible_for_the_effective_timeout_and_two_seconds(
    hardened: Core, flow_timeout: int, step_timeout: int | None, seconds: int, read_for: int
) -> None:
    """Whatever the read had set, longer or shorter."""
    hardened.flow("timed", timeout=flow_timeout)
    hardened.step("timed", "first", timeout=step_timeout)
    run = hardened.start("timed", {})
    messages = hardened.read("timed", vt=read_for)
    with hardened.visible_in(run, "first", seconds):
        assert len(hardened.start_tasks("timed", messages)) == 1


def test_each_claimed_message_gets_the_timeout_of_its_own_step(hardened: Core) -> None:
    hardened.flow("timed", timeout=60)
    hardened.step("timed", "quick", timeout=10)
    hardened.step("timed", "slow", timeout=900)
    run = hardened.start("timed", {})
    messages = hardened.read("timed")
    with hardened.visible_in(run, "quick", 12), hardened.visible_in(run, "slow", 902):
        assert len(hardened.start_tasks("timed", messages)) == 2


def test_at_0_15_0_the_visibility_of_the_read_stays(unhardened: Core) -> None:
    """The extension is written down there, but in a place that PostgreSQL never executes."""
    unhardened.flow("timed", timeout=60)
    unhardened.step("timed", "first", timeout=10)
    run = unhardened.start("timed", {})
    with unhardened.visible_in(run, "first", 30):
        messages = unhardened.read("timed", vt=30)
    read = unhardened.message(run, "first")
    assert len(unhardened.start_tasks("timed", messages)) == 1
    assert unhardened.message(run, "first") == read


@pytest.mark.parametrize(("lost", "text"), [([0], "2 of 3"), ([0, 1], "1 of 3"), ([0, 1, 2], "0 of 3")])
def test_a_claim_whose_message_is_gone_aborts_the_whole_call(
    hardened: Core, lost: list[int], text: str
) -> None:
    hardened.worker()
    hardened.flow("mapped")
    hardened.map_step("mapped", "each")
    run = hardened.start("mapped", ["a", "b", "c"])
    messages = hardened.messages(run, "each")
    hardened.lose("mapped", *(messages[index] for index in lost))
    before = hardened.everything("mapped")
    with hardened.error() as caught:
        hardened.start_tasks("mapped", messages)
    assert caught.value.sqlstate == "22P02"
    message = (
        f'invalid input syntax for type integer: "start_tasks(): visibility updated {text} claimed messages"'
    )
    if hardened.routed:
        message = f'visibility updated for {text} claimed messages of queue "mapped"'
    assert caught.value.diag.message_primary == message
    assert hardened.everything("mapped") == before


def test_a_missing_queue_aborts_the_claim(hardened: Core) -> None:
    hardened.worker()
    run = plain(hardened)
    hardened.execute("select pgmq.drop_queue('plain')")
    before = hardened.everything()
    with hardened.error() as caught:
        hardened.claim(run, "first")
    assert caught.value.sqlstate == "42P01"
    assert hardened.everything() == before


def test_at_0_15_0_a_claim_does_not_notice_that_its_message_is_gone(unhardened: Core) -> None:
    run = plain(unhardened)
    unhardened.lose("plain", unhardened.task(run, "first")["message_id"])
    assert len(unhardened.claim(run, "first")) == 1
    assert unhardened.task(run, "first")["status"] == "started"


def test_a_root_map_task_gets_its_element_of_the_run_input(core: Core) -> None:
    elements = [1, "text", {"k": [1]}, [2, 3], None, False]
    core.flow("mapped")
    core.map_step("mapped", "each")
    run = core.start("mapped", elements)
    records = core.start_tasks("mapped", core.read("mapped"))
    assert [record["task_index"] for record in records] == [0, 1, 2, 3, 4, 5]
    assert [record["input"] for record in records] == elements
    assert {record["flow_input"] is None for record in records} == {True}
    assert (
        core.value(
            "select jsonb_typeof(input) from pgflow.start_tasks('mapped', array[%s::bigint], null)",
            requeued(core, run, "each", 4),
        )
        == "null"
    )


def requeued(core: Core, run: UUID, step: str, index: int) -> int:
    """Put a started task back; returns its message."""
    core.fail(run, step, index=index)
    message: int = core.task(run, step, index)["message_id"]
    return message


def test_a_dependent_map_task_gets_its_element_of_the_parents_output(core: Core) -> None:
    core.flow("mapped")
    core.step("mapped", "list")
    core.map_step("mapped", "each", "list")
    core.map_step("mapped", "again", "each")
    core.do(core.start("mapped", {}), "list", ["another", "run"])
    run = core.start("mapped", {"not": "this"})
    core.do(run, "list", [{"k": 1}, "two"])
    records = core.start_tasks("mapped", core.messages(run, "each"))
    assert [(record["input"], record["flow_input"]) for record in records] == [
        ({"k": 1}, None),
        ("two", None),
    ]
    core.complete(run, "each", [1, 1], 0)
    core.complete(run, "each", None, 1)
    records = core.start_tasks("mapped", core.messages(run, "again"))
    assert [(record["step_slug"], record["input"]) for record in records] == [
        ("again", [1, 1]),
        ("again", None),
    ]


def test_a_dependent_single_task_gets_one_key_for_each_completed_parent(core: Core) -> None:
    core.flow("joined")
    core.step("joined", "one")
    core.step("joined", "bare")
    core.step("joined", "skipped", required_input_pattern={"never": "there"})
    core.map_step("joined", "each", "one")
    core.step("joined", "end", "one", "bare", "skipped", "each")
    core.step("joined", "stranger")
    core.do(core.start("joined", {}), "one", ["another run"])
    run = core.start("joined", {"run": "input"})
    core.do(run, "stranger", "no parent")
    core.do(run, "one", [5])
    core.do(run, "bare", None)
    core.do(run, "each", "e", 0)
    (record,) = core.claim(run, "end")
    assert record["input"] == {"one": [5], "bare": None, "each": ["e"]}
    assert record["flow_input"] is None


def test_a_single_task_all_of_whose_parents_were_skipped_gets_the_empty_object(core: Core) -> None:
    core.flow("joined")
    core.step("joined", "skipped", required_input_pattern={"never": "there"})
    core.step("joined", "end", "skipped")
    run = core.start("joined", {"run": "input"})
    (record,) = core.claim(run, "end")
    assert (record["input"], record["flow_input"]) == ({}, None)


@pytest.mark.parametrize("run_input", [{"k": 1}, [1, 2], "text", 5, False])
def test_a_root_single_task_gets_the_run_input_beside_an_empty_input(core: Core, run_input: object) -> None:
    run = plain(core, run_input)
    (record,) = core.claim(run, "first")
    assert (record["input"], record["flow_input"]) == ({}, run_input)


def test_a_json_null_run_input_stays_json_null(core: Core) -> None:
    run = plain(core, Jsonb(None))
    message = core.task(run, "first")["message_id"]
    assert (
        core.value(
            "select jsonb_typeof(flow_input) from pgflow.start_tasks('plain', array[%s::bigint], null)",
            message,
        )
        == "null"
    )


def test_root_maps_and_dependents_get_no_flow_input(core: Core) -> None:
    core.flow("joined")
    core.map_step("joined", "each")
    core.step("joined", "end", "each")
    run = core.start("joined", [1])
    message = core.task(run, "each")["message_id"]
    assert (
        core.value(
            "select flow_input is null from pgflow.start_tasks('joined', array[%s::bigint], null)", message
        )
        is True
    )
    core.complete(run, "each", 1)
    message = core.task(run, "end")["message_id"]
    assert (
        core.value(
            "select flow_input is null from pgflow.start_tasks('joined', array[%s::bigint], null)", message
        )
        is True
    )


@pytest.mark.parametrize("messages", [None, []])
def test_no_messages_give_no_records(core: Core, messages: list[int] | None) -> None:
    plain(core)
    core.worker()
    before = core.everything("plain")
    assert core.start_tasks("plain", messages) == []
    assert core.everything("plain") == before


def test_an_unknown_flow_gives_no_records_although_it_has_no_queue(core: Core) -> None:
    assert core.start_tasks("absent", [1, 2]) == []


def test_messages_of_another_flow_with_the_same_ids_are_not_claimed(core: Core) -> None:
    left = plain(core)
    core.flow("other")
    core.step("other", "first")
    right = core.start("other", {})
    assert core.messages(left, "first") == core.messages(right, "first") == [1]
    records = core.start_tasks("other", [1])
    assert [record["run_id"] for record in records] == [right]
    assert core.task(left, "first")["status"] == "queued"


def test_an_unknown_message_is_ignored(core: Core) -> None:
    run = plain(core)
    records = core.start_tasks("plain", [999, core.task(run, "first")["message_id"]])
    assert [record["run_id"] for record in records] == [run]


def test_a_message_listed_twice_is_claimed_once(core: Core) -> None:
    run = plain(core)
    message = core.task(run, "first")["message_id"]
    assert len(core.start_tasks("plain", [message, message])) == 1
    assert core.task(run, "first")["attempts_count"] == 1


def test_messages_of_several_runs_are_claimed_in_one_call(core: Core) -> None:
    first = plain(core, {"n": 1})
    second = core.start("plain", {"n": 2})
    records = core.start_tasks("plain", core.read("plain"))
    assert {record["run_id"]: record["flow_input"] for record in records} == {
        first: {"n": 1},
        second: {"n": 2},
    }


def test_the_message_of_a_started_task_is_a_benign_duplicate(core: Core) -> None:
    core.flow("mapped")
    core.map_step("mapped", "each")
    run = core.start("mapped", ["a", "b"])
    core.claim(run, "each", 0)
    core.show("mapped")
    messages = core.read("mapped", vt=500)
    assert messages == core.messages(run, "each")
    before = core.task(run, "each", 0)
    records = core.start_tasks("mapped", messages)
    assert [record["task_index"] for record in records] == [1]
    assert core.task(run, "each", 0) == before
    assert core.task(run, "each", 1)["status"] == "started"


def test_the_old_cores_leave_the_visibility_of_a_started_tasks_message_as_the_read_set_it(
    old_core: Core,
) -> None:
    """Queue identity puts it off to the recovery of the task: see test_claim_tasks."""
    run = plain(old_core)
    old_core.claim(run, "first")
    old_core.show("plain")
    messages = old_core.read("plain", vt=500)
    before = old_core.message(run, "first")
    assert old_core.start_tasks("plain", messages) == []
    assert old_core.message(run, "first") == before


def test_an_unknown_worker_is_refused_when_something_is_claimed(core: Core) -> None:
    run = plain(core)
    message = core.task(run, "first")["message_id"]
    before = core.everything("plain")
    with core.error() as caught:
        core.start_tasks("plain", [message], OTHER_WORKER)
    assert caught.value.sqlstate == "23503"
    assert caught.value.diag.constraint_name == "step_tasks_last_worker_id_fkey"
    assert core.everything("plain") == before


def test_an_unknown_worker_is_not_noticed_when_nothing_is_claimed(core: Core) -> None:
    plain(core)
    assert core.start_tasks("plain", [999], OTHER_WORKER) == []


def test_a_null_worker_is_accepted(core: Core) -> None:
    run = plain(core)
    assert len(core.start_tasks("plain", [core.task(run, "first")["message_id"]], None)) == 1
    task = core.task(run, "first")
    assert (task["status"], task["last_worker_id"]) == ("started", None)


def test_a_second_worker_takes_over_after_a_retry(core: Core) -> None:
    run = plain(core)
    core.break_(run, "first")
    core.worker(OTHER_WORKER)
    core.start_tasks("plain", [core.task(run, "first")["message_id"]], OTHER_WORKER)
    assert core.task(run, "first")["last_worker_id"] == OTHER_WORKER


def test_attempts_are_not_compared_with_their_maximum(core: Core) -> None:
    run = plain(core, max_attempts=1)
    core.execute("update pgflow.step_tasks set attempts_count = 99 where run_id = %s", run)
    assert len(core.claim(run, "first")) == 1
    assert core.task(run, "first")["attempts_count"] == 100
