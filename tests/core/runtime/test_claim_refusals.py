"""A batch with work nobody can account for is given back whole; its worker is paused, no error raised."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from pgflow_migrate.servers import Server

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core, Sessions

SOMEBODY = "99999999-9999-9999-9999-999999999999"
BODY = "swordfish"
ORPHAN = {"flow_slug": "plain", "run_id": SOMEBODY, "step_slug": BODY, "task_index": 0, "note": BODY}


def plain(core: Core) -> UUID:
    """A run with one queued task, message 1, and the function that its worker runs in."""
    core.flow("plain")
    core.step("plain", "first")
    core.execute("select pgflow.track_worker_function('test_worker')")
    core.worker()
    return core.start("plain", {})


def pause(core: Core) -> tuple[bool, str | None]:
    """Whether the worker's function is paused, and why."""
    row = core.row("select paused_at, pause_reason from pgflow.worker_functions")
    return row["paused_at"] is not None, row["pause_reason"]


def refused(
    reason: str, messages: list[tuple[int, str]], count: int | None = None, queue: str = "plain"
) -> Any:
    """A fatal outcome."""
    return {
        "outcome": "fatal",
        "queue_name": queue,
        "reason": reason,
        "messages": [{"msg_id": str(message), "reason": why} for message, why in messages],
        "message_count": len(messages) if count is None else count,
        "paused_function": "test_worker",
    }


def test_one_message_without_its_task_refuses_all_of_a_mixed_batch(routed: Core) -> None:
    routed.execute("select pgflow.track_worker_function('test_worker')")
    routed.flow("plain")
    routed.map_step("plain", "each")
    run = routed.start("plain", [0, 1, 2])
    routed.claim(run, "each", 1)
    routed.execute("update pgflow.step_tasks set status = 'cancelled' where task_index = 2")
    stray, orphan = routed.send("plain", "foreign"), routed.send("plain", ORPHAN)
    routed.hide("plain")
    before = routed.everything()
    with routed.notices() as said:
        found = routed.claim_tasks("plain", "plain", [1, 2, 3, stray, orphan])
    why = 'queue "plain" has work that flow "plain" cannot account for: 1 message, 5 (missing_task)'
    assert found == refused(why, [(orphan, "missing_task")])
    assert routed.everything() == before
    assert routed.queued("plain") == routed.visible("plain") == [1, 2, 3, stray, orphan]
    assert routed.archived("plain") == []
    assert pause(routed) == (True, why)
    assert said == []


def test_only_the_messages_of_the_batch_become_visible(routed: Core) -> None:
    plain(routed)
    orphan, other = routed.send("plain", ORPHAN), routed.send("plain", "read by another worker")
    routed.hide("plain")
    assert routed.claim_tasks("plain", "plain", [orphan, 1])["outcome"] == "fatal"
    assert routed.visible("plain") == [1, orphan]
    assert other in routed.queued("plain")


def test_the_outcome_is_committed_and_the_session_goes_on(sessions: Sessions) -> None:
    """No SQL error: that would roll back the reset and the pause."""
    worker, observer = sessions("queue_identity", 2)
    run = plain(worker)
    orphan = worker.send("plain", ORPHAN)
    worker.hide("plain")
    found = worker.claim_tasks("plain", "plain", [1, orphan])
    assert found["outcome"] == "fatal"
    assert observer.visible("plain") == [1, orphan]
    assert pause(observer) == (True, found["reason"])
    assert observer.tasks(run) == {"first/0": "queued"}


def test_the_same_batch_without_the_message_in_doubt_is_claimed(routed: Core) -> None:
    run = plain(routed)
    orphan = routed.send("plain", ORPHAN)
    assert routed.claim_tasks("plain", "plain", [1, orphan])["outcome"] == "fatal"
    routed.execute("select pgmq.archive('plain', %s::bigint)", orphan)
    (task,) = routed.claim_tasks("plain", "plain", [1, orphan])["tasks"]
    assert task["run_id"] == str(run)
    assert routed.task(run, "first")["attempts_count"] == 1


# -- reasons


@pytest.mark.parametrize("status", ["queued", "started", "completed", "cancelled"])
def test_a_task_of_another_flow_is_a_wrong_route_whatever_its_status(routed: Core, status: str) -> None:
    run = plain(routed)
    routed.flow("other")
    routed.step("other", "first")
    other = routed.start("other", {})
    moved = routed.send("plain", {})
    routed.execute(
        "update pgflow.step_tasks set queue_name = 'plain', message_id = %s, status = %s where run_id = %s",
        moved,
        status,
        other,
    )
    found = routed.claim_tasks("plain", "plain", [1, moved])
    assert found["messages"] == [{"msg_id": str(moved), "reason": "wrong_route"}]
    assert routed.queued("plain") == [1, moved]
    assert (routed.tasks(run), routed.tasks(other)) == ({"first/0": "queued"}, {"first/0": status})


def test_a_second_copy_of_a_tasks_message_is_a_wrong_route(routed: Core) -> None:
    run = plain(routed)
    copy = routed.value("select pgmq.send('plain', message) from pgmq.q_plain")
    found = routed.claim_tasks("plain", "plain", [1, copy])
    assert found["messages"] == [{"msg_id": str(copy), "reason": "wrong_route"}]
    assert routed.tasks(run) == {"first/0": "queued"}


@pytest.mark.parametrize("status", ["queued", "started"])
def test_a_live_task_of_a_step_that_has_not_begun_is_inconsistent(routed: Core, status: str) -> None:
    run = plain(routed)
    routed.execute("update pgflow.step_tasks set status = %s", status)
    routed.execute(
        "update pgflow.step_states set status = 'created', started_at = null, remaining_tasks = null"
    )
    found = routed.claim_tasks("plain", "plain", [1])
    assert found["messages"] == [{"msg_id": "1", "reason": "inconsistent_task"}]
    assert routed.tasks(run) == {"first/0": status}


def test_a_task_that_is_over_is_so_also_in_a_step_that_has_not_begun(routed: Core) -> None:
    plain(routed)
    routed.execute("update pgflow.step_tasks set status = 'completed', completed_at = now()")
    routed.execute(
        "update pgflow.step_states set status = 'created', started_at = null, remaining_tasks = null"
    )
    assert routed.claim_tasks("plain", "plain", [1])["archived"] == ["1"]


@pytest.mark.parametrize("count", [1, 2, 20, 21, 25])
def test_twenty_messages_are_named_and_all_are_counted(routed: Core, count: int) -> None:
    plain(routed)
    orphans = [routed.send("plain", ORPHAN) for _ in range(count)]
    listed = ", ".join(f"{orphan} (missing_task)" for orphan in orphans[:20])
    reason = (
        'queue "plain" has work that flow "plain" cannot account for:'
        f" {count} message{'s' if count > 1 else ''}, {listed}{', ...' if count > 20 else ''}"
    )
    expected = refused(reason, [(orphan, "missing_task") for orphan in orphans[:20]], count)
    assert routed.claim_tasks("plain", "plain", [*reversed(orphans), 1]) == expected
    assert pause(routed) == (True, reason)
    assert routed.visible("plain") == [1, *orphans]


def test_ids_beyond_two_to_the_53rd_are_exact(routed: Core) -> None:
    plain(routed)
    routed.execute(f"alter table pgmq.q_plain alter column msg_id restart with {2**53 + 1}")
    orphan = routed.send("plain", ORPHAN)
    found = routed.claim_tasks("plain", "plain", [orphan])
    assert found["messages"] == [{"msg_id": "9007199254740993", "reason": "missing_task"}]
    assert found["reason"].endswith("9007199254740993 (missing_task)")


# -- the subscription comes first


@pytest.mark.parametrize("flow", ["absent", "PLAIN", "", None])
def test_an_unknown_flow_is_refused_before_any_message_is_looked_at(routed: Core, flow: str | None) -> None:
    run = plain(routed)
    stray = routed.send("plain", "foreign")
    routed.execute("update pgflow.step_tasks set status = 'completed', completed_at = now()")
    routed.hide("plain")
    reason = f'flow "{flow or ""}" does not exist'
    assert routed.claim_tasks("plain", flow, [1, stray]) == refused(reason, [])
    assert routed.queued("plain") == routed.visible("plain") == [1, stray]
    assert pause(routed) == (True, reason)
    assert routed.tasks(run) == {"first/0": "completed"}


def test_a_queue_that_is_not_the_flows_is_refused_before_any_message_is_looked_at(routed: Core) -> None:
    plain(routed)
    routed.flow("other")
    routed.step("other", "first")
    other = routed.start("other", {})
    stray = routed.send("other", "foreign")
    routed.hide("other")
    reason = 'queue "other" is not a queue of flow "plain"'
    assert routed.claim_tasks("Other", "plain", [1, stray]) == refused(reason, [], queue="other")
    assert routed.visible("other") == [1, stray]
    assert routed.tasks(other) == {"first/0": "queued"}


def test_the_default_queue_is_the_flows_also_when_no_step_uses_it(routed: Core) -> None:
    plain(routed)
    routed.execute("update pgflow.steps set queue_name = 'elsewhere'")
    assert len(routed.claim_tasks("plain", "plain", [1])["tasks"]) == 1


@pytest.mark.parametrize(
    "queue",
    [
        "absent",
        "",
        'x"; drop table pgflow.runs; --',
        "x'; drop table pgflow.runs; --",
        "'",
        "--",
        "$",
        ";",
        "%s %I %%",
        "{}",
        "pgmq.q_plain",
        "plain ",
        "\n",
        "q" * 300,
        "é",
    ],
)
def test_a_hostile_queue_name_is_no_queue_of_the_flow(routed: Core, queue: str) -> None:
    plain(routed)
    before = routed.everything("plain")
    reason = f'queue "{queue.lower()}" is not a queue of flow "plain"'
    assert routed.claim_tasks(queue, "plain", [1]) == refused(reason, [], queue=queue.lower())
    assert routed.everything("plain") == before
    assert pause(routed) == (True, reason)


def test_an_existing_queue_of_a_hostile_name_gets_its_messages_back(routed: Core) -> None:
    plain(routed)
    queue = 'a"b.c d%s'
    routed.execute("select pgmq.create(%s)", queue)
    routed.send(queue, {})
    assert routed.read(queue) == [1]
    reason = f'queue "{queue}" is not a queue of flow "plain"'
    assert routed.claim_tasks(queue, "plain", [1]) == refused(reason, [], queue=queue)
    assert routed.read(queue) == [1]


@pytest.mark.parametrize("flow", ['x"; drop table pgflow.runs; --', "'", "%s %I", "\\", "$1"])
def test_a_hostile_flow_slug_is_an_unknown_flow(routed: Core, flow: str) -> None:
    plain(routed)
    reason = f'flow "{flow}" does not exist'
    assert routed.claim_tasks("plain", flow, [1]) == refused(reason, [])


def test_no_queue_name_at_all_is_an_error_and_changes_nothing(routed: Core) -> None:
    plain(routed)
    before = routed.everything("plain")
    with routed.error() as caught:
        routed.claim_tasks(None, "plain", [1])
    assert caught.value.sqlstate == "22004"
    assert (routed.everything("plain"), pause(routed)) == (before, (False, None))


# -- the pause


def test_a_worker_without_a_registered_function_pauses_nothing(routed: Core) -> None:
    plain(routed)
    orphan = routed.send("plain", ORPHAN)
    routed.execute("delete from pgflow.worker_functions")
    found = routed.claim_tasks("plain", "plain", [orphan])
    assert (found["outcome"], found["paused_function"]) == ("fatal", None)


@pytest.mark.parametrize("worker", [None, UUID(SOMEBODY)])
def test_an_unknown_worker_pauses_nothing_and_is_refused_all_the_same(
    routed: Core, worker: UUID | None
) -> None:
    plain(routed)
    orphan = routed.send("plain", ORPHAN)
    found = routed.claim_tasks("plain", "plain", [orphan], worker)
    assert (found["outcome"], found["paused_function"]) == ("fatal", None)
    assert pause(routed) == (False, None)


def test_only_the_workers_own_function_is_paused(routed: Core) -> None:
    plain(routed)
    routed.execute("select pgflow.track_worker_function('another')")
    routed.claim_tasks("plain", "plain", [routed.send("plain", ORPHAN)])
    assert routed.rows("select function_name from pgflow.worker_functions where paused_at is not null") == [
        {"function_name": "test_worker"}
    ]


def test_the_first_reason_and_time_stay(routed: Core) -> None:
    plain(routed)
    first, second = routed.send("plain", ORPHAN), routed.send("plain", ORPHAN)
    routed.claim_tasks("plain", "plain", [first])
    before = routed.row("select paused_at, pause_reason from pgflow.worker_functions")
    assert routed.claim_tasks("plain", "plain", [second])["paused_function"] == "test_worker"
    assert routed.row("select paused_at, pause_reason from pgflow.worker_functions") == before


# -- bodies stay where they are


def test_no_body_gets_out_by_any_way(sessions: Sessions, server: Server) -> None:
    """Neither by the result, nor the pause, nor a message to the client, nor the server's log."""
    (worker,) = sessions("queue_identity", 1)
    plain(worker)
    worker.execute("set client_min_messages = debug1; set log_min_messages = debug1")
    stray, orphan = worker.send("plain", {BODY: BODY}), worker.send("plain", ORPHAN)
    worker.execute("update pgmq.q_plain set message = %s::jsonb where msg_id = 1", json.dumps({BODY: BODY}))
    begun = server.log.stat().st_size if server.log else 0
    with worker.notices() as said:
        refusal = worker.claim_tasks("plain", "plain", [1, stray, orphan])
        wrapped = worker.start_tasks("plain", [1, stray, orphan])
        claimed = worker.claim_tasks("plain", "plain", [1, stray])
    assert (refusal["outcome"], wrapped, claimed["foreign"]) == ("fatal", [], [str(stray)])
    function = worker.rows("select to_jsonb(f)::text as f from pgflow.worker_functions f")
    assert BODY not in json.dumps([refusal, claimed, said, function])
    assert any("archived messages that are not pgflow's" in one for one in said)
    if server.log is None:
        pytest.skip("the server is elsewhere: its log was not read")
    with server.log.open("rb") as log:
        log.seek(begun)
        written = log.read().decode()
    assert "archived messages that are not pgflow's" in written
    assert BODY not in written


# -- the wrapper


def test_the_wrapper_warns_and_gives_no_rows(routed: Core) -> None:
    run = plain(routed)
    orphan = routed.send("plain", ORPHAN)
    routed.hide("plain")
    with routed.notices() as said:
        assert routed.start_tasks("plain", [1, orphan]) == []
    reason = (
        f'queue "plain" has work that flow "plain" cannot account for: 1 message, {orphan} (missing_task)'
    )
    assert said == [f"WARNING: start_tasks(): {reason} Nothing was claimed. See pgflow.claim_tasks."]
    assert pause(routed) == (True, reason)
    assert routed.visible("plain") == [1, orphan]
    assert routed.tasks(run) == {"first/0": "queued"}


def test_the_wrapper_knows_no_fatal_unknown_flow(routed: Core) -> None:
    plain(routed)
    with routed.notices() as said:
        assert routed.start_tasks("absent", [1]) == []
    assert (said, pause(routed)) == ([], (False, None))
