"""claim_tasks: every message of a batch gets its verdict, and all verdicts come before the first change."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from psycopg.types.json import Jsonb

if TYPE_CHECKING:
    from tests.core.runtime.conftest import Core, Sessions

STRANGER = UUID("99999999-9999-9999-9999-999999999999")
NOTHING: dict[str, Any] = {
    "outcome": "claimed",
    "tasks": [],
    "deferred": [],
    "archived": [],
    "busy": [],
    "foreign": [],
}


def outcome(queue: str = "plain", **parts: object) -> dict[str, Any]:
    """A claimed outcome with these parts, and nothing else."""
    return NOTHING | {"queue_name": queue} | parts


def plain(core: Core, run_input: object = None, **options: object) -> UUID:
    """A run of a flow with one step."""
    core.flow("plain")
    core.step("plain", "first", **options)
    return core.start("plain", {} if run_input is None else run_input)


def mapped(core: Core, count: int, **options: object) -> tuple[UUID, list[int]]:
    """A run of one map with ``count`` tasks, and their messages."""
    core.flow("mapped")
    core.map_step("mapped", "each", **options)
    run = core.start("mapped", list(range(count)))
    return run, core.messages(run, "each")


# -- queued: claimed


def test_a_queued_task_is_started_and_told(routed: Core) -> None:
    run = plain(routed, {"n": 1})
    before = routed.task(run, "first")
    assert routed.claim_tasks("plain", "plain", [1]) == outcome(
        tasks=[
            {
                "flow_slug": "plain",
                "run_id": str(run),
                "step_slug": "first",
                "task_index": 0,
                "attempt": 1,
                "msg_id": "1",
                "queue_name": "plain",
                "input": {},
                "flow_input": {"n": 1},
            }
        ]
    )
    assert routed.task(run, "first") == before | {
        "status": "started",
        "attempts_count": 1,
        "started_at": routed.value("select now()"),
        "last_worker_id": UUID("11111111-1111-1111-1111-111111111111"),
    }
    assert (routed.queued("plain"), routed.archived("plain")) == ([1], [])


@pytest.mark.parametrize(
    ("flow_timeout", "step_timeout", "seconds"), [(60, 10, 12), (60, 300, 302), (7, None, 9)]
)
@pytest.mark.parametrize("read_for", [0, 3600])
def test_a_claimed_message_is_invisible_for_the_effective_timeout_and_two_seconds(
    routed: Core, flow_timeout: int, step_timeout: int | None, seconds: int, read_for: int
) -> None:
    routed.flow("timed", timeout=flow_timeout)
    routed.step("timed", "first", timeout=step_timeout)
    run = routed.start("timed", {})
    messages = routed.read("timed", vt=read_for)
    with routed.visible_in(run, "first", seconds):
        assert len(routed.claim_tasks("timed", "timed", messages)["tasks"]) == 1


def test_tasks_come_in_the_order_of_their_keys_with_their_inputs(routed: Core) -> None:
    routed.flow("joined")
    routed.step("joined", "list")
    routed.map_step("joined", "each", "list")
    routed.step("joined", "alone")
    run = routed.start("joined", {"run": "input"})
    routed.do(run, "list", [{"k": 1}, None])
    claimed = routed.claim_tasks("joined", "joined", routed.queued("joined"))["tasks"]
    assert [
        (task["step_slug"], task["task_index"], task["input"], task["flow_input"]) for task in claimed
    ] == [
        ("alone", 0, {}, {"run": "input"}),
        ("each", 0, {"k": 1}, None),
        ("each", 1, None, None),
    ]
    routed.complete(run, "each", "e", 0)
    routed.complete(run, "each", "f", 1)


def test_a_single_step_gets_the_outputs_of_its_parents(routed: Core) -> None:
    routed.flow("joined")
    routed.step("joined", "one")
    routed.map_step("joined", "each", "one")
    routed.step("joined", "end", "one", "each")
    run = routed.start("joined", {})
    routed.do(run, "one", [7])
    routed.do(run, "each", "seven", 0)
    (task,) = routed.claim_tasks("joined", "joined", routed.messages(run, "end"))["tasks"]
    assert (task["input"], task["flow_input"]) == ({"one": [7], "each": ["seven"]}, None)


def test_the_wrapper_gives_the_same_tasks(routed: Core) -> None:
    """start_tasks: the flow's default queue, and a row for each task."""
    routed.flow("camelCase")
    routed.step("camelCase", "first")
    run = routed.start("camelCase", {"n": 1})
    (record,) = routed.start_tasks("camelCase", [1])
    assert record == {
        "flow_slug": "camelCase",
        "run_id": run,
        "step_slug": "first",
        "input": {},
        "msg_id": 1,
        "task_index": 0,
        "flow_input": {"n": 1},
    }
    assert routed.task(run, "first")["queue_name"] == "camelcase"


@pytest.mark.parametrize("queue", ["camelcase", "camelCase", "CAMELCASE"])
def test_the_queue_may_be_spelt_in_any_case_and_is_told_in_canonical_spelling(
    routed: Core, queue: str
) -> None:
    routed.flow("camelCase")
    routed.step("camelCase", "first")
    routed.start("camelCase", {})
    claimed = routed.claim_tasks(queue, "camelCase", [1])
    assert (claimed["queue_name"], claimed["tasks"][0]["queue_name"]) == ("camelcase", "camelcase")


def test_an_unknown_worker_is_refused_and_changes_nothing(routed: Core) -> None:
    plain(routed)
    before = routed.everything("plain")
    with routed.error() as caught:
        routed.claim_tasks("plain", "plain", [1], STRANGER)
    assert caught.value.sqlstate == "23503"
    assert caught.value.diag.constraint_name == "step_tasks_last_worker_id_fkey"
    assert routed.everything("plain") == before


@pytest.mark.parametrize(("lost", "text"), [([0], "2 of 3"), ([0, 1, 2], "0 of 3")])
def test_a_queued_task_whose_message_is_gone_aborts_the_claim(
    routed: Core, lost: list[int], text: str
) -> None:
    routed.worker()
    _, messages = mapped(routed, 3)
    routed.lose("mapped", *(messages[index] for index in lost))
    before = routed.everything("mapped")
    with routed.error() as caught:
        routed.claim_tasks("mapped", "mapped", messages)
    assert caught.value.sqlstate == "22P02"
    assert (
        caught.value.diag.message_primary
        == f'visibility updated for {text} claimed messages of queue "mapped"'
    )
    assert routed.everything("mapped") == before


# -- started: deferred to the task's own recovery


@pytest.mark.parametrize(
    ("flow_timeout", "step_timeout", "timeout"), [(60, 10, 10), (10, 300, 300), (7, None, 7)]
)
def test_a_started_task_is_put_off_to_its_own_recovery(
    routed: Core, flow_timeout: int, step_timeout: int | None, timeout: int
) -> None:
    routed.flow("timed", timeout=flow_timeout)
    routed.step("timed", "first", timeout=step_timeout)
    run = routed.start("timed", {})
    routed.claim(run, "first")
    task = routed.task(run, "first")
    recovery = task["started_at"] + timedelta(seconds=timeout + 30)
    for _ in range(3):
        routed.show("timed")
        messages = routed.read("timed", vt=1000)
        before = routed.clock()
        assert routed.claim_tasks("timed", "timed", messages) == outcome("timed", deferred=["1"])
        late = (routed.message(run, "first")["vt"] - recovery).total_seconds()
        # Not earlier, or it would be read in vain; no fresh timeout after every read. A second is rounding.
        assert 0 <= late < 1 + (routed.clock() - before).total_seconds()
    assert routed.task(run, "first") == task


@pytest.mark.parametrize("age", [0, 45, 60])
def test_what_is_left_of_the_deadline_counts(routed: Core, age: int) -> None:
    """Timeout 60: recovery is due 90 s after the start."""
    run = plain(routed)
    routed.claim(run, "first")
    routed.age(run, "first", age)
    task = routed.task(run, "first")
    before = routed.clock()
    assert routed.claim_tasks("plain", "plain", [1]) == outcome(deferred=["1"])
    wait = routed.message(run, "first")["vt"] - task["started_at"]
    assert 90 <= wait.total_seconds() < 91 + (routed.clock() - before).total_seconds()
    assert routed.task(run, "first") == task


@pytest.mark.parametrize("age", [91, 100_000])
def test_after_the_deadline_the_message_is_put_off_by_the_interval_of_the_recovery(
    routed: Core, age: int
) -> None:
    run = plain(routed)
    routed.claim(run, "first")
    routed.age(run, "first", age)
    task = routed.task(run, "first")
    with routed.visible_in(run, "first", 15):
        assert routed.claim_tasks("plain", "plain", [1]) == outcome(deferred=["1"])
    assert routed.task(run, "first") == task


def test_a_deferred_message_that_is_gone_is_no_error(routed: Core) -> None:
    run, messages = mapped(routed, 2)
    routed.claim(run, "each", 0)
    routed.lose("mapped", messages[0])
    claimed = routed.claim_tasks("mapped", "mapped", messages)
    assert [task["msg_id"] for task in claimed["tasks"]] == ["2"]
    assert claimed["deferred"] == ["1"]


def test_the_deferred_message_of_a_requeued_task_is_visible_at_once_and_claimed_again(routed: Core) -> None:
    run = plain(routed)
    routed.claim(run, "first")
    routed.claim_tasks("plain", "plain", [1])
    assert routed.visible("plain") == []
    routed.age(run, "first", 1000)
    assert routed.requeue() == 1
    assert routed.visible("plain") == [1]
    (again,) = routed.claim_tasks("plain", "plain", [1])["tasks"]
    assert again["attempt"] == routed.task(run, "first")["attempts_count"] == 2


@pytest.mark.parametrize("timeout", [2147483613, 2147483645, 2147483647])
def test_the_longest_timeouts_work(routed: Core, timeout: int) -> None:
    run = plain(routed, timeout=timeout)
    # An integer of seconds is the most that PGMQ takes.
    with routed.visible_in(run, "first", min(timeout + 2, 2147483647)):
        assert len(routed.claim_tasks("plain", "plain", [1])["tasks"]) == 1
    with routed.visible_in(run, "first", 2147483647 if timeout > 2147483617 else timeout + 30):
        assert routed.claim_tasks("plain", "plain", [1]) == outcome(deferred=["1"])
    assert routed.task(run, "first")["status"] == "started"


def test_a_task_that_an_old_core_revived_after_giving_it_up_is_a_task_like_others(routed: Core) -> None:
    """0.16.0 queued a permanently stalled task again when it failed late; its message may still be there."""
    run = plain(routed, max_attempts=5)
    routed.execute(
        "update pgflow.step_tasks set attempts_count = 1, requeued_count = 3, permanently_stalled_at = now()"
    )
    assert len(routed.claim_tasks("plain", "plain", [1])["tasks"]) == 1
    task = routed.task(run, "first")
    assert (task["permanently_stalled_at"], task["requeued_count"], task["attempts_count"]) == (None, 3, 2)
    assert routed.claim_tasks("plain", "plain", [1]) == outcome(deferred=["1"])
    routed.fail(run, "first")
    assert routed.task(run, "first")["status"] == "queued"
    assert len(routed.claim_tasks("plain", "plain", [1])["tasks"]) == 1
    routed.age(run, "first", 1000)
    assert routed.requeue() == 0
    assert routed.task(run, "first")["permanently_stalled_at"] == routed.value("select now()")
    assert routed.archived("plain") == [1]


def test_a_task_that_is_younger_than_the_transaction_can_be_claimed_in_it(sessions: Sessions) -> None:
    worker, producer = sessions("queue_identity", 2)
    worker.flow("plain")
    worker.step("plain", "first")
    worker.worker()
    with worker.transaction():
        begun = worker.value("select now()")
        run = producer.start("plain", {})
        assert worker.read("plain") == [1]
        assert len(worker.claim_tasks("plain", "plain", [1])["tasks"]) == 1
        task = worker.task(run, "first")
        assert task["started_at"] == task["queued_at"] > begun


# -- over: archived

OVER = {
    "completed": "update pgflow.step_tasks set status = 'completed', completed_at = now()",
    "failed": "update pgflow.step_tasks set status = 'failed', failed_at = now()",
    "skipped": "update pgflow.step_tasks set status = 'skipped'",
    "cancelled": "update pgflow.step_tasks set status = 'cancelled'",
    "queued in a failed run": "update pgflow.runs set status = 'failed', failed_at = now()",
    "queued in a completed run": "update pgflow.runs set status = 'completed', completed_at = now(),"
    " remaining_steps = 0",
    "queued in a skipped step": "update pgflow.step_states set status = 'skipped', skip_reason = 'x',"
    " skipped_at = now(), remaining_tasks = null",
    "queued in a failed step": "update pgflow.step_states set status = 'failed', failed_at = now()",
    "queued in a completed step": "update pgflow.step_states set status = 'completed', completed_at = now(),"
    " remaining_tasks = 0",
}
BEGUN = "update pgflow.step_tasks set status = 'started', started_at = now(), attempts_count = 1;"
OVER |= {
    what.replace("queued", "started"): BEGUN + how for what, how in OVER.items() if what.startswith("queued")
}
OVER["permanently stalled"] = (
    BEGUN + "update pgflow.step_tasks set requeued_count = 3, permanently_stalled_at = now()"
)


@pytest.mark.parametrize("how", OVER.values(), ids=OVER)
def test_the_message_of_a_task_that_is_over_is_archived_and_the_task_left_alone(
    routed: Core, how: str
) -> None:
    run = plain(routed)
    routed.execute(how)
    before = routed.run(run), routed.state(run, "first"), routed.task(run, "first"), routed.events(run)
    assert routed.claim_tasks("plain", "plain", routed.read("plain")) == outcome(archived=["1"])
    assert (routed.queued("plain"), routed.archived("plain")) == ([], [1])
    assert (
        routed.run(run),
        routed.state(run, "first"),
        routed.task(run, "first"),
        routed.events(run),
    ) == before
    # Again: the message is nobody's business any more.
    assert routed.claim_tasks("plain", "plain", [1]) == outcome()
    assert (routed.queued("plain"), routed.archived("plain")) == ([], [1])


@pytest.mark.parametrize("how", OVER.values(), ids=OVER)
@pytest.mark.parametrize("old_core", ["core_0_15_1", "core_0_16_0"], indirect=True)
def test_the_old_cores_read_such_messages_again_and_again(old_core: Core, how: str) -> None:
    plain(old_core)
    old_core.execute(how)
    for _ in range(3):
        old_core.show("plain")
        assert old_core.read("plain") == [1]
        assert old_core.start_tasks("plain", [1]) == []
    assert (old_core.queued("plain"), old_core.archived("plain")) == ([1], [])


def test_a_permanently_stalled_task_can_still_be_completed_after_its_message_is_archived(
    routed: Core,
) -> None:
    run = plain(routed)
    routed.execute(OVER["permanently stalled"])
    assert routed.claim_tasks("plain", "plain", [1]) == outcome(archived=["1"])
    routed.complete(run, "first", "late")
    assert (routed.task(run, "first")["status"], routed.run(run)["status"]) == ("completed", "completed")


# -- foreign and gone


def test_a_foreign_message_is_archived_with_a_warning_that_names_it(routed: Core) -> None:
    plain(routed)
    stray = routed.send("plain", {"secret": "of an application"})
    with routed.notices() as said:
        claimed = routed.claim_tasks("plain", "plain", [1, stray])
    assert (claimed["foreign"], len(claimed["tasks"])) == ([str(stray)], 1)
    assert (routed.queued("plain"), routed.archived("plain")) == ([1], [stray])
    assert said == [
        f'WARNING: queue "plain": archived messages that are not pgflow\'s: {stray}'
        " Applications must not send to a queue that pgflow owns."
    ]


def test_a_foreign_message_may_have_the_id_of_a_task_in_another_queue(routed: Core) -> None:
    run = plain(routed)
    routed.flow("other")
    routed.step("other", "first")
    other = [routed.start("other", {}) for _ in range(2)]
    stray = routed.send("plain", "foreign")
    assert stray == routed.task(other[1], "first")["message_id"] == 2
    claimed = routed.claim_tasks("plain", "plain", [1, stray])
    assert (claimed["foreign"], [task["run_id"] for task in claimed["tasks"]]) == (["2"], [str(run)])
    assert (routed.archived("plain"), routed.archived("other")) == ([stray], [])


def test_the_warning_names_twenty_at_most(routed: Core) -> None:
    plain(routed)
    strays = [routed.send("plain", number) for number in range(25)]
    with routed.notices() as said:
        claimed = routed.claim_tasks("plain", "plain", strays)
    assert claimed == outcome(foreign=[str(stray) for stray in strays])
    assert said == [
        'WARNING: queue "plain": archived messages that are not pgflow\'s: '
        + ", ".join(str(stray) for stray in strays[:20])
        + ", ... Applications must not send to a queue that pgflow owns."
    ]
    assert routed.archived("plain") == strays


def test_messages_that_are_not_in_the_queue_are_left_out(routed: Core) -> None:
    plain(routed)
    assert routed.claim_tasks("plain", "plain", [0, -1, 999, 2**63 - 1]) == outcome()


# -- the whole batch


def test_a_batch_of_every_kind(routed: Core) -> None:
    run, messages = mapped(routed, 4)
    queued, started, over, lost = messages
    routed.claim(run, "each", 1)
    routed.claim(run, "each", 2)
    routed.execute(
        "update pgflow.step_tasks set status = 'completed', completed_at = now() where message_id = %s", over
    )
    routed.execute("update pgflow.step_tasks set message_id = null where message_id = %s", lost)
    routed.lose("mapped", lost)
    stray = routed.send("mapped", ["not", "ours"])
    routed.show("mapped")
    batch = routed.read("mapped")
    assert batch == [queued, started, over, stray]
    claimed = routed.claim_tasks("mapped", "mapped", [*batch, 999])
    assert [task["msg_id"] for task in claimed.pop("tasks")] == [str(queued)]
    assert claimed == {
        "outcome": "claimed",
        "queue_name": "mapped",
        "deferred": [str(started)],
        "archived": [str(over)],
        "busy": [],
        "foreign": [str(stray)],
    }
    assert routed.queued("mapped") == [queued, started]
    assert routed.archived("mapped") == [over, stray]
    assert {key: task for key, task in routed.tasks(run).items() if key != "each/3"} == {
        "each/0": "started",
        "each/1": "started",
        "each/2": "completed",
    }
    attempts = "select array_agg(attempts_count order by task_index) from pgflow.step_tasks"
    assert routed.value(attempts) == [1, 1, 1, 0]


@pytest.mark.parametrize("batch", [None, [], [None], [None, None]])
def test_no_messages_are_no_tasks(routed: Core, batch: list[int | None] | None) -> None:
    plain(routed)
    before = routed.everything("plain")
    assert routed.claim_tasks("plain", "plain", batch) == outcome()
    assert routed.everything("plain") == before


def test_nulls_and_repetitions_do_not_count(routed: Core) -> None:
    run, _ = mapped(routed, 2)
    routed.claim(run, "each", 1)
    stray = routed.send("mapped", {})
    claimed = routed.claim_tasks("mapped", "mapped", [stray, None, 2, 1, 1, None, 2, stray, 1])
    assert [task["msg_id"] for task in claimed["tasks"]] == ["1"]
    assert (claimed["deferred"], claimed["foreign"]) == (["2"], [str(stray)])
    assert routed.task(run, "each")["attempts_count"] == 1


def test_a_hundred_thousand_ids_are_one_batch(routed: Core) -> None:
    run, messages = mapped(routed, 500)
    routed.start_tasks("mapped", messages[:100])
    strays = [routed.send("mapped", {"n": number}) for number in range(50)]
    routed.execute("set local statement_timeout = '60s'")
    claimed = routed.claim_tasks("mapped", "mapped", range(100_000, 0, -1))
    assert len(claimed["tasks"]) == 400
    assert claimed["deferred"] == [str(message) for message in messages[:100]]
    assert claimed["foreign"] == [str(stray) for stray in strays]
    assert set(routed.tasks(run).values()) == {"started"}


def test_ids_beyond_two_to_the_53rd_are_exact(routed: Core) -> None:
    """A JavaScript number would round them."""
    first = 2**53 + 1
    routed.flow("mapped")
    routed.map_step("mapped", "each")
    routed.execute(f"alter table pgmq.q_mapped alter column msg_id restart with {first}")
    run = routed.start("mapped", [0, 1, 2])
    routed.claim(run, "each", 1)
    routed.execute("update pgflow.step_tasks set status = 'cancelled' where task_index = 2")
    stray = routed.send("mapped", "stray")
    claimed = routed.claim_tasks("mapped", "mapped", range(first, first + 4))
    assert [task["msg_id"] for task in claimed["tasks"]] == ["9007199254740993"]
    assert claimed["deferred"] == ["9007199254740994"]
    assert claimed["archived"] == ["9007199254740995"]
    assert claimed["foreign"] == ["9007199254740996"] == [str(stray)]


def test_the_largest_id_of_all(routed: Core) -> None:
    routed.flow("plain")
    routed.step("plain", "first")
    routed.execute(f"alter table pgmq.q_plain alter column msg_id restart with {2**63 - 1}")
    routed.start("plain", {})
    (task,) = routed.claim_tasks("plain", "plain", [2**63 - 1])["tasks"]
    assert task["msg_id"] == "9223372036854775807"


# -- what the body says does not matter where a task owns the message


@pytest.mark.parametrize(
    "body",
    [
        None,
        Jsonb(None),
        {},
        [],
        "text",
        {"flow_slug": "other"},
        {"flow_slug": "plain", "run_id": "no uuid", "step_slug": "first", "task_index": 0},
        {"flow_slug": "plain", "run_id": str(STRANGER), "step_slug": "elsewhere", "task_index": 7},
    ],
)
def test_a_live_tasks_message_is_claimed_whatever_its_body(routed: Core, body: object) -> None:
    run = plain(routed)
    value = body if body is None or isinstance(body, Jsonb) else Jsonb(body)
    routed.execute("update pgmq.q_plain set message = %s", value)
    assert [task["run_id"] for task in routed.claim_tasks("plain", "plain", [1])["tasks"]] == [str(run)]
