"""claim_task_v2: one task, one owner, one message at most."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from tests.dirty_runs.changes import unchanged, watching, without_triggers
from tests.dirty_runs.protocol import WORKER, Row, Session, token
from tests.dirty_runs.transitions.conftest import Queues
from tests.moments import moment

STRANGER = UUID("00000000-0000-4000-8000-00000000000f")


def started_v1(session: Session) -> UUID:
    """A run of protocol 1."""
    run: UUID = session.value("select run_id from pgflow.start_flow('demo', '{}')")
    return run


def without_b(demo: Session) -> UUID:
    """A run whose A is completed: its work is pending."""
    run = demo.started()
    demo.complete(demo.claimed(run, "a"), {"n": 1})
    return run


def dispatched(demo: Session) -> UUID:
    """A run whose B is queued, and not yet clean."""
    run = without_b(demo)
    assert demo.reconcile(run)["outcome"] == "dispatched"
    return run


def with_b(demo: Session) -> UUID:
    """A run whose B may be claimed."""
    run = dispatched(demo)
    assert demo.reconcile(run)["outcome"] == "clean"
    return run


def test_a_claim_starts_the_task_and_hides_its_message(session: Session, queues: Queues) -> None:
    run = session.started(given={"n": 1})
    mine = token()
    with watching(session) as seen:
        outcome = session.claim(run, "a", token=mine)
    expires = outcome.pop("lease_expires_at")
    assert outcome == {
        "outcome": "claimed",
        "replayed": False,
        "claim_id": str(mine),
        "claim_number": 1,
        "flow_slug": "demo",
        "run_id": str(run),
        "step_slug": "a",
        "task_index": 0,
        "queue_name": queues.a,
        "msg_id": "1",
        # As with protocol 1: the outputs of what it depends on, and for a root the flow's input.
        "input": {},
        "flow_input": {"n": 1},
        "policy": {"maxAttempts": 1, "whenExhausted": "fail", "timeout": 60},
    }
    claim = session.claim_row(mine)
    assert claim["lease_expires_at"] - claim["claimed_at"] == timedelta(seconds=60 + 30)
    assert moment(expires) == claim["lease_expires_at"]
    assert seen.added == {
        "task_claims": {
            (mine,): {
                "claim_id": mine,
                "run_id": run,
                "step_slug": "a",
                "task_index": 0,
                "claim_number": 1,
                "queue_name": queues.a,
                "message_id": 1,
                "worker_id": WORKER,
                "max_attempts": 1,
                "when_exhausted": "fail",
                "timeout_seconds": 60,
                "claimed_at": seen.now,
                "lease_expires_at": seen.after(90),
                "state": "active",
            }
        }
    }
    assert seen.changed == {
        "step_tasks": {
            (run, "a", 0): {"status": "started", "started_at": seen.now, "current_claim_id": mine}
        },
        # Not read: PGMQ's counter of reads is not a counter of claims.
        f"q_{queues.a}": {(1,): {"vt": seen.after(90)}},
    }
    assert (seen.removed, seen.events) == ({}, [])


def test_b_gets_the_outputs_of_its_dependencies(session: Session, queues: Queues) -> None:
    run = session.started(given={"n": 0})
    session.complete(session.claimed(run, "a"), '{"bb": 1.0, "a": null}')
    session.settle_down(run)
    with watching(session) as seen:
        outcome = session.claim(run, "b")
    assert (outcome["outcome"], outcome["claim_number"]) == ("claimed", 1)
    assert outcome["input"] == {"a": {"a": None, "bb": 1}}
    assert outcome["flow_input"] is None
    # In one queue it is the second message, in a queue of B's own the first.
    message = 2 if queues.a == queues.b else 1
    assert (outcome["queue_name"], outcome["msg_id"]) == (queues.b, str(message))
    assert seen.tables() == {"task_claims", "step_tasks", f"q_{queues.b}"}
    assert set(seen.changed[f"q_{queues.b}"]) == {(message,)}


def test_queue_and_message_may_be_named_in_any_spelling(session: Session) -> None:
    session.define(queues=True)
    run = session.started()
    outcome = session.claim(run, "a", [1], queue="Demo__A")
    assert (outcome["outcome"], outcome["queue_name"], outcome["msg_id"]) == ("claimed", "demo__a", "1")


def test_ids_beyond_what_json_readers_hold_are_told_as_text(demo: Session) -> None:
    demo.execute("alter sequence pgmq.q_demo_msg_id_seq restart with 9007199254740993")
    run = demo.started()
    assert demo.claim(run, "a", [9007199254740993])["msg_id"] == "9007199254740993"


def test_a_takeover_is_a_second_claim_and_the_first_stays_as_history(demo: Session) -> None:
    run = demo.started()
    first = demo.claimed(run, "a")
    demo.expire(first)
    demo.recover(run, "a", first)
    history = demo.claim_row(first)
    with watching(demo) as seen:
        outcome = demo.claim(run, "a", worker=STRANGER)
    second = UUID(outcome["claim_id"])
    assert (outcome["claim_number"], outcome["msg_id"]) == (2, "1")
    assert seen.added["task_claims"][(second,)]["worker_id"] == STRANGER
    assert seen.changed == {
        "step_tasks": {
            (run, "a", 0): {"status": "started", "started_at": seen.now, "current_claim_id": second}
        },
        "q_demo": {(1,): {"vt": seen.after(90)}},
    }
    assert demo.claim_row(first) == history
    task = demo.task(run, "a")
    assert (task["attempts_count"], task["requeued_count"], task["last_worker_id"]) == (0, 0, None)


# -- rejected ----------------------------------------------------------------------------------------------

NOT_ONE = {
    "two": "'{1,2}'",
    "the same twice": "'{1,1}'",
    "null": "array[null]::bigint[]",
    "one and null": "'{1,null}'",
    "nested": "'{{1}}'",
    "two in two arrays": "'{{1},{1}}'",
    "two, counted from -1": "'[-1:0]={1,1}'",
}


@pytest.mark.parametrize("ids", NOT_ONE.values(), ids=NOT_ONE)
def test_more_than_one_message_is_rejected_before_anything_is_read(
    demo: Session, open_session: Callable[[], Session], ids: str
) -> None:
    run = demo.started()
    assert demo.claim(run, "c")["outcome"] == "unknown"  # The function is compiled, which looks up tables.
    locker = open_session()
    with unchanged(demo), locker.connection.transaction():
        # Whoever looks at any of these waits, and fails after 100 ms.
        locker.execute(
            "lock table pgflow.runs, pgflow.run_work, pgflow.step_states, pgflow.step_tasks,"
            " pgflow.task_claims, pgmq.q_demo in access exclusive mode"
        )
        demo.execute("set lock_timeout = '100ms'")
        for identity in (str(run), None):
            assert demo.value(
                f"select pgflow.claim_task_v2(%s, null, 0, null, {ids}, %s)", identity, WORKER
            ) == {"outcome": "rejected", "reason": "message_ids"}


@pytest.mark.parametrize("ids", ["null", "'{}'", "'{1}'", "'[-3:-3]={1}'", "'[5:5]={1}'"])
def test_no_message_or_one_is_a_claim_wherever_the_array_begins(demo: Session, ids: str) -> None:
    run = demo.started()
    outcome = demo.value(f"select pgflow.claim_task_v2(%s, 'a', 0, null, {ids}, %s)", run, WORKER)
    assert (outcome["outcome"], outcome["msg_id"]) == ("claimed", "1")


@pytest.mark.parametrize("ids", ["'{2}'", "'[-3:-3]={2}'", "'[5:5]={2}'"])
def test_another_message_is_stale_wherever_the_array_begins(shared: Session, ids: str) -> None:
    run = shared.started()
    ids = ids.replace("2", str(shared.task(run, "a")["message_id"] + 1))
    with unchanged(shared):
        assert shared.value(f"select pgflow.claim_task_v2(%s, 'a', 0, null, {ids}, %s)", run, WORKER) == {
            "outcome": "stale",
            "reason": "message",
        }


@pytest.mark.parametrize("missing", range(4))
def test_an_address_with_a_null_is_rejected(shared: Session, missing: int) -> None:
    run = shared.started()
    values: list[object] = [run, "a", 0, WORKER]
    values[missing] = None
    with unchanged(shared):
        assert shared.value(
            "select pgflow.claim_task_v2(%s::uuid, %s, %s::int, null, '{1}', %s::uuid)", *values
        ) == {
            "outcome": "rejected",
            "reason": "null_argument",
        }


# -- unknown and wrong_protocol ----------------------------------------------------------------------------


def test_what_does_not_exist_is_unknown(shared: Session) -> None:
    run = shared.started()
    with unchanged(shared):
        assert shared.claim(uuid4(), "a") == {"outcome": "unknown", "reason": "run"}
        assert shared.claim(run, "c") == {"outcome": "unknown", "reason": "step"}
        assert shared.claim(run, "a", index=1) == {"outcome": "unknown", "reason": "task"}
        assert shared.claim(run, "a", index=-1) == {"outcome": "unknown", "reason": "task"}
        assert shared.claim(run, "b", index=1) == {"outcome": "unknown", "reason": "task"}


def test_a_run_of_protocol_1_is_not_claimed(shared: Session) -> None:
    run = started_v1(shared)
    with unchanged(shared):
        assert shared.claim(run, "a", [1]) == {"outcome": "wrong_protocol", "protocol_version": 1}


# -- terminal ----------------------------------------------------------------------------------------------


def test_a_run_that_is_over_has_no_claims(demo: Session) -> None:
    completed, failed = demo.started(), demo.started()
    demo.complete(demo.claimed(completed, "a"), 1)
    demo.settle_down(completed)
    demo.complete(demo.claimed(completed, "b"), 1)
    demo.settle_down(completed)
    demo.fail(demo.claimed(failed, "a"))
    with unchanged(demo):
        for run, status in ((completed, "completed"), (failed, "failed")):
            for step in ("a", "b", "c"):  # the run comes before the step
                assert demo.claim(run, step) == {"outcome": "terminal", "reason": "run", "status": status}


def test_a_step_that_is_over_has_no_claims_also_while_work_is_pending(shared: Session) -> None:
    run = without_b(shared)
    with unchanged(shared):
        assert shared.claim(run, "a") == {"outcome": "terminal", "reason": "step", "status": "completed"}
        assert shared.claim(run, "a", [99], index=5) == {
            "outcome": "terminal",
            "reason": "step",
            "status": "completed",
        }


@pytest.mark.parametrize("status", ["completed", "failed", "skipped", "cancelled"])
def test_a_task_that_is_over_has_no_claims(shared: Session, status: str) -> None:
    run = shared.started()
    with without_triggers(shared):
        shared.execute("update pgflow.step_tasks set status = %s", status)
    with unchanged(shared):
        # The task's end comes before its message.
        assert shared.claim(run, "a", [99]) == {"outcome": "terminal", "reason": "task", "status": status}


# -- stale -------------------------------------------------------------------------------------------------


def test_another_message_or_queue_is_stale(session: Session) -> None:
    session.define(queues=True)
    run = session.started()
    with unchanged(session):
        for ids, queue in (([2], None), ([2], "demo__a"), ([1], "demo__b"), (None, "demo")):
            assert session.claim(run, "a", ids, queue=queue) == {"outcome": "stale", "reason": "message"}


def test_a_message_of_another_run_is_stale_although_it_is_in_the_queue(demo: Session) -> None:
    first, second = demo.started(), demo.started()
    assert demo.messages() == [1, 2]
    with unchanged(demo):
        assert demo.claim(first, "a", [2]) == {"outcome": "stale", "reason": "message"}
        assert demo.claim(second, "a", [1]) == {"outcome": "stale", "reason": "message"}


@pytest.mark.parametrize("end", ["settled", "revoked"])
def test_a_token_whose_claim_has_ended_is_stale(shared: Session, end: str) -> None:
    run = shared.started()
    mine = shared.claimed(run, "a")
    if end == "settled":
        shared.complete(mine, 1)
    else:
        shared.expire(mine)
        shared.recover(run, "a", mine)
    with unchanged(shared):
        assert shared.claim(run, "a", token=mine) == {"outcome": "stale", "reason": end}


# -- blocked -----------------------------------------------------------------------------------------------


def test_a_step_that_is_not_dispatched_is_blocked(shared: Session) -> None:
    run = shared.started()
    blocked = {"outcome": "blocked", "reason": "not_dispatched"}
    with unchanged(shared):
        assert shared.claim(run, "b") == blocked
    shared.complete(shared.claimed(run, "a"), 1)
    with unchanged(shared):
        assert shared.claim(run, "b") == blocked


def test_pending_work_blocks_claims_of_tasks_that_are_queued(demo: Session) -> None:
    run = dispatched(demo)
    with unchanged(demo):
        for ids in (None, [2]):
            assert demo.claim(run, "b", ids) == {
                "outcome": "blocked",
                "reason": "pending",
                "attention_reason": None,
            }


def test_a_back_off_blocks_claims_also_when_it_is_over(shared: Session) -> None:
    run = shared.started()
    shared.request(run)
    with without_triggers(shared):
        shared.execute(
            "update pgflow.run_work set state = 'retry_wait', failure_count = 1, last_error = 'x',"
            " last_error_sqlstate = 'XX000', last_failed_at = now(), next_attempt_at = now() - interval '1 s'"
        )
    with unchanged(shared):
        assert shared.claim(run, "a") == {
            "outcome": "blocked",
            "reason": "retry_wait",
            "attention_reason": None,
        }


@pytest.mark.parametrize("reason", ["claims_exhausted", "message_missing", "failures_exhausted"])
def test_attention_blocks_claims_and_says_why(shared: Session, reason: str) -> None:
    run = shared.started()
    shared.execute(
        "update pgflow.run_work set state = 'attention', attention_at = now(), attention_reason = %s", reason
    )
    with unchanged(shared):
        assert shared.claim(run, "a") == {
            "outcome": "blocked",
            "reason": "attention",
            "attention_reason": reason,
        }


def test_a_definition_that_is_no_longer_that_of_the_start_blocks(shared: Session) -> None:
    run = shared.started()
    with without_triggers(shared):
        shared.execute("update pgflow.steps set opt_timeout = 59 where step_slug = 'b'")
    with unchanged(shared):
        assert shared.claim(run, "a") == {"outcome": "blocked", "reason": "definition_changed"}


def test_a_start_delay_blocks_until_it_is_over_also_with_a_visible_message(session: Session) -> None:
    session.define(delay=3600)
    run = with_b(session)
    session.execute("select pgmq.set_vt('demo', 2, 0)")
    with unchanged(session):
        assert session.claim(run, "b", [2]) == {"outcome": "blocked", "reason": "start_delay"}
    with without_triggers(session):
        session.execute(
            "update pgflow.step_tasks set queued_at = queued_at - interval '3590 s' where step_slug = 'b'"
        )
    with unchanged(session):
        assert session.claim(run, "b")["reason"] == "start_delay"
    with without_triggers(session):
        session.execute(
            "update pgflow.step_tasks set queued_at = queued_at - interval '10 s' where step_slug = 'b'"
        )
    assert session.claim(run, "b")["outcome"] == "claimed"


def test_a_message_that_is_not_in_its_queue_blocks(demo: Session) -> None:
    run = demo.started()
    demo.execute("select pgmq.archive('demo', 1)")
    with unchanged(demo):
        assert demo.claim(run, "a") == {"outcome": "blocked", "reason": "message_missing"}


def test_a_third_claim_is_blocked_even_if_somebody_has_queued_the_task_again(shared: Session) -> None:
    run = shared.started()
    first = shared.claimed(run, "a")
    shared.expire(first)
    shared.recover(run, "a", first)
    second = shared.claimed(run, "a")
    shared.execute(
        "update pgflow.step_tasks set status = 'queued', started_at = null, current_claim_id = null"
    )
    shared.execute(
        "update pgflow.task_claims set state = 'revoked', revoked_at = now(), revoked_reason = 'lease_lost'"
        " where claim_id = %s",
        second,
    )
    with unchanged(shared):
        assert shared.claim(run, "a") == {"outcome": "blocked", "reason": "claims_exhausted"}


# -- held and replayed -------------------------------------------------------------------------------------


def test_a_task_that_is_held_is_not_claimed_also_when_the_lease_is_over(shared: Session) -> None:
    run = shared.started()
    mine = shared.claimed(run, "a")
    for _ in range(2):
        expires = shared.claim_row(mine)["lease_expires_at"]
        with unchanged(shared):
            # A worker's id is no ownership: neither its own nor another's.
            for worker in (WORKER, STRANGER):
                outcome = shared.claim(run, "a", worker=worker)
                assert moment(outcome.pop("lease_expires_at")) == expires
                assert outcome == {"outcome": "held"}
        shared.expire(mine)


def test_the_same_claim_again_is_replayed_while_it_is_active(shared: Session) -> None:
    run = shared.started(given={"n": 1})
    mine = token()
    first = shared.claim(run, "a", token=mine)

    def again() -> Row:
        with unchanged(shared):
            return shared.claim(run, "a", token=mine)

    assert again() == {**first, "replayed": True}
    shared.request(run)  # It is no new claim, so pending work does not matter.
    assert again() == {**first, "replayed": True}
    shared.expire(mine)
    assert {**again(), "lease_expires_at": 0} == {**first, "replayed": True, "lease_expires_at": 0}


def test_a_token_that_is_used_elsewhere_is_a_conflict(demo: Session) -> None:
    demo.define("other")
    run, second, other = demo.started(), demo.started(), demo.started("other")
    demo.complete(demo.claimed(run, "a"), 1)
    demo.settle_down(run)
    mine = demo.claimed(run, "b")
    conflict = {"outcome": "conflict", "reason": "claim_id"}

    def elsewhere() -> list[Row]:
        return [
            demo.claim(second, "a", token=mine),
            demo.claim(second, "b", token=mine),
            demo.claim(other, "a", token=mine),
            demo.claim(run, "a", token=mine),
            demo.claim(run, "b", index=1, token=mine),
            demo.claim(run, "b", worker=STRANGER, token=mine),
        ]

    with unchanged(demo):
        assert elsewhere() == [conflict] * 6
    demo.complete(mine, 1)
    with unchanged(demo):
        assert elsewhere() == [conflict] * 6
    demo.settle_down(run)
    with unchanged(demo):
        assert elsewhere() == [conflict] * 6


# -- the order ---------------------------------------------------------------------------------------------


def test_preconditions_are_asked_in_their_order(session: Session) -> None:
    """Everything is wrong at once; what is asked first is mended first."""
    session.define(delay=100)
    run = with_b(session)
    number = itertools.count()
    ids: list[int] = [2, 2]
    step, index, queue = "b", 0, "wrong"
    expected = [
        ("rejected", "message_ids"),
        ("rejected", "null_argument"),
        ("terminal", "run"),
        ("unknown", "step"),
        ("terminal", "step"),
        ("unknown", "task"),
        ("terminal", "task"),
        ("stale", "message"),
        ("blocked", "attention"),
        ("held", None),
        ("blocked", "definition_changed"),
        ("blocked", "start_delay"),
        ("blocked", "claims_exhausted"),
        ("blocked", "message_missing"),
        ("claimed", None),
    ]
    made = [uuid4(), uuid4()]
    with without_triggers(session):
        for claim_number, claim in enumerate(made, 1):
            session.execute(
                "insert into pgflow.task_claims (claim_id, run_id, step_slug, task_index, claim_number,"
                " queue_name, message_id, worker_id, max_attempts, when_exhausted, timeout_seconds,"
                " claimed_at, lease_expires_at, state, revoked_at, revoked_reason) values"
                " (%s, %s, 'b', 0, %s, 'demo', 2, %s, 1, 'fail', 60,"
                " now(), now() + interval '1 h', 'revoked', now(), 'lease_lost')",
                claim, run, claim_number, WORKER,
            )  # fmt: skip
        session.execute(
            "update pgflow.step_tasks set status = 'cancelled', started_at = queued_at, current_claim_id = %s"
            " where step_slug = 'b'",
            made[1],
        )
        session.execute(
            "update pgflow.run_work set state = 'attention', attention_at = now(),"
            " attention_reason = 'claims_exhausted'"
        )
        session.execute("update pgflow.steps set opt_timeout = 59 where step_slug = 'a'")
        session.execute("select pgmq.archive('demo', 2)")
        session.execute("update pgflow.runs set status = 'failed', failed_at = clock_timestamp()")
        session.execute("update pgflow.step_states set status = 'failed', failed_at = clock_timestamp()"
                        " where step_slug = 'b'")  # fmt: skip

    worker: UUID | None = None
    for outcome, reason in expected:
        with unchanged(session) if outcome != "claimed" else watching(session):
            found = session.value(
                "select pgflow.claim_task_v2(%s, %s, %s, %s, %s::bigint[], %s)",
                run, "c" if next(number) < 4 else step, index, queue, ids, worker,
            )  # fmt: skip
        assert (found["outcome"], found.get("reason")) == (outcome, reason)
        with without_triggers(session):
            match (outcome, reason):
                case ("rejected", "message_ids"):
                    ids, index = [1], 1
                case ("rejected", "null_argument"):
                    worker = WORKER
                case ("terminal", "run"):
                    session.execute("update pgflow.runs set status = 'started', failed_at = null")
                case ("terminal", "step"):
                    session.execute(
                        "update pgflow.step_states set status = 'started', failed_at = null"
                        " where step_slug = 'b'"
                    )
                case ("unknown", "task"):
                    index = 0
                case ("terminal", "task"):
                    session.execute("update pgflow.step_tasks set status = 'started' where step_slug = 'b'")
                case ("stale", "message"):
                    ids, queue = [2], "demo"
                case ("blocked", "attention"):
                    session.execute(
                        "update pgflow.run_work set state = 'clean', attention_at = null,"
                        " attention_reason = null"
                    )
                case ("held", None):
                    session.execute(
                        "update pgflow.step_tasks set status = 'queued', started_at = null,"
                        " current_claim_id = null where step_slug = 'b'"
                    )
                case ("blocked", "definition_changed"):
                    session.execute("update pgflow.steps set opt_timeout = null where step_slug = 'a'")
                case ("blocked", "start_delay"):
                    session.execute(
                        "update pgflow.step_tasks set queued_at = queued_at - interval '101 s'"
                        " where step_slug = 'b'"
                    )
                case ("blocked", "claims_exhausted"):
                    session.execute("delete from pgflow.task_claims where claim_id = %s", made[1])
                case ("blocked", "message_missing"):
                    session.execute(
                        "insert into pgmq.q_demo (msg_id, vt, message) overriding system value"
                        " select msg_id, vt, message from pgmq.a_demo where msg_id = 2"
                    )
    assert session.task(run, "b")["status"] == "started"
