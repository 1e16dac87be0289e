"""recover_task_v2: one claim whose lease is over is revoked, or a person is asked."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest
from tests.dirty_runs.changes import unchanged, watching, without_triggers
from tests.dirty_runs.protocol import Row, Session
from tests.dirty_runs.transitions.conftest import Queues
from tests.moments import moment


def expired(demo: Session) -> tuple[UUID, UUID]:
    """A run whose A is held by a claim with a lease that is over; run and claim."""
    run = demo.started()
    claim = demo.claimed(run, "a")
    demo.expire(claim)
    return run, claim


def expired_twice(demo: Session) -> tuple[UUID, UUID, UUID]:
    """As ``expired``, and the claim is the task's second; run, first and second claim."""
    run, first = expired(demo)
    assert demo.recover(run, "a", first)["outcome"] == "recovered"
    second = demo.claimed(run, "a")
    demo.expire(second)
    return run, first, second


def test_an_expired_claim_is_revoked_and_its_task_queued_again(session: Session, queues: Queues) -> None:
    run, claim = expired(session)
    with watching(session) as seen:
        outcome = session.recover(run, "a", claim, [1])
    assert outcome == {"outcome": "recovered", "claim_id": str(claim), "replayed": False}
    assert seen.changed == {
        "task_claims": {
            (claim,): {"state": "revoked", "revoked_at": seen.now, "revoked_reason": "lease_lost"}
        },
        "step_tasks": {(run, "a", 0): {"status": "queued", "started_at": None, "current_claim_id": None}},
        f"q_{queues.a}": {(1,): {"vt": seen.now}},
    }
    assert (seen.added, seen.removed, seen.events) == ({}, {}, [])

    # The takeover goes on to the run's end.
    session.complete(session.claimed(run, "a"), 1)
    session.settle_down(run)
    session.complete(session.claimed(run, "b"), 2)
    session.settle_down(run)
    assert (session.run(run)["status"], session.run(run)["output"]) == ("completed", {"b": 2})
    task = session.task(run, "a")
    assert (task["attempts_count"], task["requeued_count"], task["last_requeued_at"]) == (0, 0, None)


def test_the_last_allowed_claim_stays_and_the_run_asks_for_attention(
    session: Session, queues: Queues
) -> None:
    run, _, second = expired_twice(session)
    with watching(session) as seen:
        outcome = session.recover(run, "a", second)
    assert outcome == {"outcome": "attention", "reason": "claims_exhausted"}
    assert seen.changed == {
        "run_work": {
            (run,): {
                "state": "attention",
                "attention_at": seen.now,
                "attention_reason": "claims_exhausted",
            }
        }
    }
    assert (seen.added, seen.removed, seen.events) == ({}, {}, [])
    assert session.messages(queues.a) == [1]

    # Again: the same answer. No further claim; a person is asked, nothing clears it.
    with unchanged(session):
        assert session.recover(run, "a", second) == outcome
        assert session.claim(run, "a") == {
            "outcome": "blocked",
            "reason": "attention",
            "attention_reason": "claims_exhausted",
        }
        assert session.reconcile(run) == {
            "outcome": "attention",
            "run_id": str(run),
            "reason": "claims_exhausted",
        }

    # Its result is still accepted, and starts nothing.
    assert session.complete(second, 5) == {
        "outcome": "accepted",
        "disposition": "completed",
        "replayed": False,
    }
    work = session.work(run)
    assert (work["state"], work["requested_generation"], work["processed_generation"]) == ("attention", 1, 0)
    with unchanged(session):
        assert session.reconcile(run)["outcome"] == "attention"
        assert session.claim(run, "b")["outcome"] == "blocked"


def test_a_message_that_is_missing_is_for_a_person_and_the_claim_stays(demo: Session) -> None:
    run, claim = expired(demo)
    demo.execute("select pgmq.delete('demo', 1)")
    with watching(demo) as seen:
        outcome = demo.recover(run, "a", claim, [1])
    assert outcome == {"outcome": "attention", "reason": "message_missing"}
    assert seen.changed == {
        "run_work": {
            (run,): {"state": "attention", "attention_at": seen.now, "attention_reason": "message_missing"}
        }
    }
    assert (seen.added, seen.removed) == ({}, {})
    with unchanged(demo):
        assert demo.recover(run, "a", claim) == outcome
    assert demo.complete(claim, 1)["outcome"] == "accepted"


def test_the_limit_comes_before_the_message(demo: Session) -> None:
    run, _, second = expired_twice(demo)
    demo.execute("select pgmq.delete('demo', 1)")
    assert demo.recover(run, "a", second) == {"outcome": "attention", "reason": "claims_exhausted"}


def test_attention_for_another_reason_is_told_and_stays(shared: Session) -> None:
    run, claim = expired(shared)
    shared.execute(
        "update pgflow.run_work set state = 'attention', attention_at = now(),"
        " attention_reason = 'failures_exhausted'"
    )
    with unchanged(shared):
        assert shared.recover(run, "a", claim) == {"outcome": "attention", "reason": "failures_exhausted"}


def test_attention_comes_before_the_limit(shared: Session) -> None:
    run, _, second = expired_twice(shared)
    shared.execute(
        "update pgflow.run_work set state = 'attention', attention_at = now(),"
        " attention_reason = 'message_missing'"
    )
    with unchanged(shared):
        assert shared.recover(run, "a", second) == {"outcome": "attention", "reason": "message_missing"}


def test_a_lease_that_goes_on_comes_before_attention(shared: Session) -> None:
    run = shared.started()
    claim = shared.claimed(run, "a")
    shared.execute(
        "update pgflow.run_work set state = 'attention', attention_at = now(),"
        " attention_reason = 'message_missing'"
    )
    with unchanged(shared):
        assert shared.recover(run, "a", claim)["outcome"] == "not_expired"


# -- the lease ---------------------------------------------------------------------------------------------


def test_a_claim_is_recoverable_from_the_end_of_its_lease_and_not_before(demo: Session) -> None:
    run = demo.started()
    claim = demo.claimed(run, "a")
    for left in ("90 s", "1 s"):
        with without_triggers(demo):
            demo.execute(
                f"update pgflow.task_claims set claimed_at = now() - interval '1 h',"
                f" lease_expires_at = clock_timestamp() + interval '{left}'"
            )
        expires = demo.claim_row(claim)["lease_expires_at"]
        with unchanged(demo):
            outcome = demo.recover(run, "a", claim)
        assert moment(outcome.pop("lease_expires_at")) == expires
        assert outcome == {"outcome": "not_expired"}
    with without_triggers(demo):
        demo.execute("update pgflow.task_claims set lease_expires_at = clock_timestamp()")
    assert demo.recover(run, "a", claim)["outcome"] == "recovered"


def test_the_clock_counts_and_not_the_start_of_the_transaction(demo: Session) -> None:
    run = demo.started()
    claim = demo.claimed(run, "a")
    with demo.connection.transaction():
        began = demo.value("select now()")
        with without_triggers(demo):
            demo.execute(
                "update pgflow.task_claims set claimed_at = now() - interval '1 h',"
                " lease_expires_at = clock_timestamp()"
            )
        assert demo.claim_row(claim)["lease_expires_at"] > began
        assert demo.recover(run, "a", claim)["outcome"] == "recovered"


@pytest.mark.parametrize("state", ["pending", "retry_wait"])
def test_recovery_goes_on_while_work_waits_and_leaves_it_as_it_is(shared: Session, state: str) -> None:
    run, claim = expired(shared)
    shared.request(run)
    if state == "retry_wait":
        shared.execute(
            "update pgflow.run_work set state = 'retry_wait', failure_count = 1, last_error = 'x',"
            " last_error_sqlstate = 'XX000', last_failed_at = now(), next_attempt_at = now() + interval '1 h'"
        )
    before = shared.work(run)
    assert shared.recover(run, "a", claim)["outcome"] == "recovered"
    assert shared.work(run) == before
    with unchanged(shared):
        assert shared.claim(run, "a")["reason"] == state


# -- replays, and claims that have ended -------------------------------------------------------------------


def test_the_same_recovery_again_is_replayed_and_leaves_a_later_claim_alone(demo: Session) -> None:
    run, claim = expired(demo)
    demo.recover(run, "a", claim)
    again = {"outcome": "recovered", "claim_id": str(claim), "replayed": True}
    with unchanged(demo):
        assert demo.recover(run, "a", claim) == again
    second = demo.claimed(run, "a")
    demo.expire(second)
    with unchanged(demo):
        assert demo.recover(run, "a", claim, [1]) == again
    demo.complete(second, 1)
    demo.settle_down(run)
    demo.fail(demo.claimed(run, "b"))
    with unchanged(demo):
        assert demo.recover(run, "a", claim) == again


@pytest.mark.parametrize(
    ("settle", "disposition"),
    [
        (lambda s, c: s.complete(c, 1), "completed"),
        (lambda s, c: s.complete(c, ["x" * 70_000]), "oversized"),
        (lambda s, c: s.fail(c), "failed"),
    ],
    ids=["completed", "oversized", "failed"],
)
def test_a_settled_claim_is_not_recovered_also_after_its_lease(
    demo: Session, settle: Callable[[Session, UUID], Row], disposition: str
) -> None:
    run, claim = expired(demo)
    assert settle(demo, claim)["outcome"] == "accepted"
    with unchanged(demo):
        # Also with a run that is over, and with the message archived.
        assert demo.recover(run, "a", claim, [1]) == {"outcome": "settled", "disposition": disposition}


def test_a_claim_that_its_run_has_ended_is_terminal(shared: Session) -> None:
    run = shared.started()
    claim = shared.claimed(run, "a")
    shared.value("select pgflow._v2_fail_run(%s, 'a', 'by hand')", run)
    with unchanged(shared):
        assert shared.recover(run, "a", claim) == {"outcome": "terminal", "reason": "run", "status": "failed"}


# -- what is asked first -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", ["'{1,1}'", "'{1,2}'", "array[null]::bigint[]", "'{{1}}'"])
def test_more_than_one_message_is_rejected_before_anything_is_read(
    demo: Session, open_session: Callable[[], Session], ids: str
) -> None:
    run, claim = expired(demo)
    assert demo.recover(run, "b", claim)["outcome"] == "unknown"  # The function is compiled.
    locker = open_session()
    with unchanged(demo), locker.connection.transaction():
        locker.execute(
            "lock table pgflow.runs, pgflow.run_work, pgflow.step_states, pgflow.step_tasks,"
            " pgflow.task_claims, pgmq.q_demo in access exclusive mode"
        )
        demo.execute("set lock_timeout = '100ms'")
        for identity in (claim, None):
            assert demo.value(
                f"select pgflow.recover_task_v2(%s, 'a', 0, %s::uuid, {ids})", run, identity
            ) == {
                "outcome": "rejected",
                "reason": "message_ids",
            }


@pytest.mark.parametrize("missing", range(4))
def test_an_address_with_a_null_is_rejected(shared: Session, missing: int) -> None:
    run, claim = expired(shared)
    values: list[object] = [run, "a", 0, claim]
    values[missing] = None
    with unchanged(shared):
        assert shared.value(
            "select pgflow.recover_task_v2(%s::uuid, %s, %s::int, %s::uuid, '{1}')", *values
        ) == {
            "outcome": "rejected",
            "reason": "null_argument",
        }


def test_no_ids_are_the_default_and_any_lower_bound_will_do(demo: Session) -> None:
    run, claim = expired(demo)
    with unchanged(demo):
        for ids in ("'[7:7]={2}'", "'[-7:-7]={2}'"):
            assert demo.value(f"select pgflow.recover_task_v2(%s, 'a', 0, %s, {ids})", run, claim) == {
                "outcome": "stale",
                "reason": "message",
            }
    assert demo.value("select pgflow.recover_task_v2(%s, 'a', 0, %s)", run, claim)["outcome"] == "recovered"
    assert demo.value("select pgflow.recover_task_v2(%s, 'a', 0, %s, '[-7:-7]={1}')", run, claim)["replayed"]


def test_another_message_is_stale_before_the_claim_is_looked_at(shared: Session) -> None:
    run = shared.started()
    claim = shared.claimed(run, "a")
    stale = {"outcome": "stale", "reason": "message"}
    with unchanged(shared):
        assert shared.recover(run, "a", claim, [2]) == stale
    shared.complete(claim, 1)
    with unchanged(shared):
        assert shared.recover(run, "a", claim, [2]) == stale


def test_runs_and_claims_that_are_not_there_are_unknown(shared: Session) -> None:
    run, claim = expired(shared)
    other, theirs = expired(shared)
    no_claim = {"outcome": "unknown", "reason": "claim"}
    with unchanged(shared):
        assert shared.recover(uuid4(), "a", claim) == {"outcome": "unknown", "reason": "run"}
        assert shared.recover(run, "a", uuid4()) == no_claim
        assert shared.recover(run, "b", claim) == no_claim
        assert shared.recover(run, "a", claim, index=1) == no_claim
        # Of one task of one run: neither is swept along with the other.
        assert shared.recover(run, "a", theirs) == no_claim
        assert shared.recover(other, "a", claim, [99]) == no_claim
    assert shared.recover(run, "a", claim)["outcome"] == "recovered"
    assert shared.claim_row(theirs)["state"] == "active"


def test_a_run_of_protocol_1_is_not_recovered(shared: Session) -> None:
    _, claim = expired(shared)
    run = shared.value("select run_id from pgflow.start_flow('demo', '{}')")
    with unchanged(shared):
        assert shared.recover(run, "a", claim) == {"outcome": "wrong_protocol", "protocol_version": 1}
