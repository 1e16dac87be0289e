"""complete_claim_v2 and fail_claim_v2: what a claim comes to, once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from tests.dirty_runs.changes import Changes, unchanged, watching, without_triggers
from tests.dirty_runs.protocol import Row, Session
from tests.dirty_runs.transitions.conftest import Queues, break_hints

COMPLETED = {"outcome": "accepted", "disposition": "completed", "replayed": False}
FAILED = {"outcome": "accepted", "disposition": "failed", "replayed": False}
OVERSIZED = {"outcome": "accepted", "disposition": "oversized", "replayed": False}
LARGE = "x" * 65_536
Settle = Callable[[Session, UUID], Row]

SETTLEMENTS: dict[str, Settle] = {
    "success": lambda session, claim: session.complete(claim, {"n": 1}),
    "failure": lambda session, claim: session.fail(claim),
    "oversize": lambda session, claim: session.complete(claim, [LARGE]),
}


def sha(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def held(demo: Session) -> tuple[UUID, UUID]:
    """A run whose A is held; run and claim."""
    run = demo.started()
    return run, demo.claimed(run, "a")


def held_b(demo: Session) -> tuple[UUID, UUID, UUID]:
    """A run whose B is held, with clean work; run, claim of A, claim of B."""
    run, first = held(demo)
    demo.complete(first, {"from": "a"})
    demo.settle_down(run)
    return run, first, demo.claimed(run, "b")


def test_a_success_ends_task_and_step_and_requests_orchestration(session: Session, queues: Queues) -> None:
    run, claim = held(session)
    with watching(session) as seen:
        outcome = session.complete(claim, '{"zz": 1.50, "b": "x"}')
    assert outcome == COMPLETED
    kept = {"b": "x", "zz": 1.5}
    canonical = '{"b": "x", "zz": 1.5}'
    assert seen.changed == {
        "task_claims": {
            (claim,): {
                "state": "settled",
                "settled_at": seen.now,
                "settlement_kind": "succeeded",
                "disposition": "completed",
                "settlement_sha256": sha(canonical),
                "settlement_bytes": len(canonical),
            }
        },
        "step_tasks": {(run, "a", 0): {"status": "completed", "completed_at": seen.now, "output": kept}},
        "step_states": {
            (run, "a"): {
                "status": "completed",
                "completed_at": seen.now,
                "remaining_tasks": 0,
                "output": kept,
            }
        },
        "run_work": {(run,): {"state": "pending", "requested_generation": 1, "requested_at": seen.now}},
    }
    assert_archived(session, seen, queues.a, 1)
    assert session.value("select output::text from pgflow.step_tasks") == canonical
    assert seen.events == [
        (
            "step:a:completed",
            {
                "event_type": "step:completed",
                "step_slug": "a",
                "status": "completed",
                "output": kept,
                "completed_at": seen.now,
            },
        )
    ]


def assert_archived(session: Session, seen: Changes, queue: str, *messages: int) -> None:
    """That these messages, and no other row, went from a queue to its archive."""
    keys = {(message,) for message in messages}
    assert {table: set(rows) for table, rows in seen.removed.items()} == {f"q_{queue}": keys}
    assert {table: set(rows) for table, rows in seen.added.items()} == {f"a_{queue}": keys}
    for key in keys:
        archived = dict(seen.added[f"a_{queue}"][key])
        assert archived.pop("archived_at") == seen.now
        assert archived == seen.removed[f"q_{queue}"][key]


def failed_run(seen: Changes, run: UUID, step: str, error: str, work: Row) -> dict[str, dict[Any, Row]]:
    """What changes of run, step, task and work when a task's only attempt has failed."""
    end = {"status": "failed", "failed_at": seen.now}
    return {
        "step_tasks": {(run, step, 0): {**end, "error_message": error}},
        "step_states": {(run, step): {**end, "error_message": error}},
        "runs": {(run,): end},
        "run_work": {(run,): work},
    }


def failure_events(seen: Changes, step: str, error: str) -> list[tuple[str, Row]]:
    end = {"status": "failed", "error_message": error, "failed_at": seen.now}
    return [
        (f"step:{step}:failed", {"event_type": "step:failed", "step_slug": step, **end}),
        ("run:failed", {"event_type": "run:failed", "flow_slug": "demo", **end}),
    ]


def test_a_failure_ends_the_run_at_once_without_a_processor(session: Session, queues: Queues) -> None:
    run, claim = held(session)
    with watching(session) as seen:
        outcome = session.fail(claim, "it broke")
    assert outcome == FAILED
    assert seen.changed == {
        "task_claims": {
            (claim,): {
                "state": "settled",
                "settled_at": seen.now,
                "settlement_kind": "failed",
                "disposition": "failed",
                "settlement_sha256": sha('"it broke"'),
                "settlement_bytes": 10,
                "settlement_error": "it broke",
            }
        },
        **failed_run(seen, run, "a", "it broke", {"requested_generation": 1, "processed_generation": 1}),
    }
    assert_archived(session, seen, queues.a, 1)
    assert seen.events == failure_events(seen, "a", "it broke")
    with unchanged(session):
        assert session.reconcile()["outcome"] == "idle"
        assert session.reconcile(run)["outcome"] == "idle"
    assert (session.state(run, "b")["status"], session.run(run)["output"]) == ("created", None)


def test_a_failure_of_b_leaves_what_a_has_done(session: Session, queues: Queues) -> None:
    run, first, claim = held_b(session)
    with watching(session) as seen:
        assert session.fail(claim, "b broke") == FAILED
    assert seen.changed.pop("task_claims")[(claim,)]["settlement_error"] == "b broke"
    assert seen.changed == failed_run(
        seen, run, "b", "b broke", {"requested_generation": 2, "processed_generation": 2}
    )
    assert_archived(session, seen, queues.b, 2 if queues.a == queues.b else 1)
    assert (session.state(run, "a")["status"], session.task(run, "a")["output"]) == (
        "completed",
        {"from": "a"},
    )
    assert session.claim_row(first)["disposition"] == "completed"


def test_an_oversized_result_fails_the_run_and_is_not_kept(session: Session, queues: Queues) -> None:
    run, claim = held(session)
    with watching(session) as seen:
        outcome = session.complete(claim, [LARGE])
    assert outcome == OVERSIZED
    error = "[RESULT_TOO_LARGE] 65540 bytes, at most 65536 are kept"
    assert seen.changed == {
        "task_claims": {
            (claim,): {
                "state": "settled",
                "settled_at": seen.now,
                "settlement_kind": "succeeded",
                "disposition": "oversized",
                "settlement_sha256": sha(f'["{LARGE}"]'),
                "settlement_bytes": 65_540,
                "settlement_error": error,
            }
        },
        **failed_run(seen, run, "a", error, {"requested_generation": 1, "processed_generation": 1}),
    }
    assert_archived(session, seen, queues.a, 1)
    assert seen.events == failure_events(seen, "a", error)
    # No handler's retry: nothing is queued, nothing may be claimed.
    assert session.messages(queues.a) == []
    with unchanged(session):
        assert session.claim(run, "a")["outcome"] == "terminal"


def test_a_failure_cancels_other_unfinished_tasks_and_revokes_their_claims(demo: Session) -> None:
    # Two steps in a row never run at once; a second root shows what the function does.
    run, claim = held(demo)
    demo.execute("select pgflow._v2_dispatch_step(%s, 'b')", run)
    other = demo.claimed(run, "b")
    with watching(demo) as seen:
        assert demo.fail(claim) == FAILED
    assert seen.changed["step_tasks"][(run, "b", 0)] == {"status": "cancelled"}
    assert seen.changed["task_claims"][(other,)] == {
        "state": "revoked",
        "revoked_at": seen.now,
        "revoked_reason": "run_failed",
    }
    assert set(seen.changed) == {"task_claims", "step_tasks", "step_states", "runs", "run_work"}
    assert set(seen.changed["step_states"]) == {(run, "a")}
    assert_archived(demo, seen, "demo", 1, 2)
    with unchanged(demo):
        for late in (demo.complete(other, 1), demo.complete(other, [LARGE]), demo.fail(other)):
            assert late == {"outcome": "terminal", "reason": "run", "status": "failed"}


def test_queued_messages_of_a_run_that_fails_are_archived_and_those_of_others_stay(demo: Session) -> None:
    other = demo.started()
    run, claim = held(demo)
    demo.execute("select pgflow._v2_dispatch_step(%s, 'b')", run)
    with watching(demo) as seen:
        demo.fail(claim)
    assert seen.changed["step_tasks"][(run, "b", 0)] == {"status": "cancelled"}
    assert_archived(demo, seen, "demo", 2, 3)
    assert (demo.messages(), demo.run(other)["status"]) == ([1], "started")


# -- replays and conflicts ---------------------------------------------------------------------------------


def answers(demo: Session, claim: UUID) -> dict[str, Row]:
    """What each settlement of a claim comes to; nothing may change."""
    with unchanged(demo):
        return {name: settle(demo, claim) for name, settle in SETTLEMENTS.items()}


@pytest.mark.parametrize("kept", SETTLEMENTS)
def test_the_first_settlement_is_replayed_and_every_other_conflicts(shared: Session, kept: str) -> None:
    _, claim = held(shared)
    first = SETTLEMENTS[kept](shared, claim)
    assert first["outcome"] == "accepted"
    conflict = {
        "outcome": "conflict",
        "settled_kind": "failed" if kept == "failure" else "succeeded",
        "disposition": first["disposition"],
    }
    expected = {**dict.fromkeys(SETTLEMENTS, conflict), kept: {**first, "replayed": True}}
    assert answers(shared, claim) == expected
    with unchanged(shared):
        assert shared.complete(claim, {"n": 2}) == conflict
        assert shared.complete(claim, {"n": "1"}) == conflict
        assert shared.complete(claim, [LARGE + "x"]) == conflict
        assert shared.complete(claim, ["y" * 65_536]) == conflict
        assert shared.fail(claim, "it broke otherwise") == conflict
        # The same text, as a result and as an error: the kind tells them apart.
        assert shared.complete(claim, json.dumps("it broke")) == conflict


def test_a_result_is_replayed_whatever_came_after(demo: Session) -> None:
    run, claim = held(demo)
    demo.complete(claim, {"n": 1})
    conflict = {"outcome": "conflict", "settled_kind": "succeeded", "disposition": "completed"}
    expected = {"success": {**COMPLETED, "replayed": True}, "failure": conflict, "oversize": conflict}
    assert answers(demo, claim) == expected
    assert demo.reconcile(run)["outcome"] == "dispatched"
    assert answers(demo, claim) == expected
    assert demo.reconcile(run)["outcome"] == "clean"
    second = demo.claimed(run, "b")
    assert answers(demo, claim) == expected
    demo.expire(second)
    demo.recover(run, "b", second)
    third = demo.claimed(run, "b")
    assert answers(demo, claim) == expected
    demo.complete(third, 3)
    assert demo.reconcile(run)["outcome"] == "finalized"
    assert answers(demo, claim) == expected
    assert demo.reconcile(run)["outcome"] == "clean"
    assert answers(demo, claim) == expected
    demo.release(run)  # As long as the row is there.
    assert answers(demo, claim) == expected


def test_a_result_is_replayed_after_its_run_has_failed(demo: Session) -> None:
    _, first, claim = held_b(demo)
    demo.fail(claim)
    with unchanged(demo):
        assert demo.complete(first, {"from": "a"}) == {**COMPLETED, "replayed": True}
        assert demo.complete(first, {"from": "b"})["outcome"] == "conflict"
        assert demo.fail(claim) == {**FAILED, "replayed": True}


SAME = {
    "key order and white space": ('{"a": 1, "bb": [true, null]}', '{ "bb":[true,null],\n"a":1 }'),
    "the last of equal keys": ('{"a": 2}', '{"a": 1, "a": 2}'),
    "spelling of a number": ("150", "1.50e2"),
    "zeros after the point": ('{"n": [1, 0]}', '{"n": [1.000, -0.0]}'),
    "escapes": ('"A\\u00e9/"', '"\\u0041é\\/"'),
}
DIFFERENT = [
    "0",
    "false",
    '""',
    "null",
    "{}",
    "[]",
    '"0"',
    '"false"',
    '"null"',
    "[null]",
    "1",
    "0.1",
    '{"a": null}',
]


@pytest.mark.parametrize(("kept", "again"), SAME.values(), ids=SAME)
def test_equal_json_is_the_same_result(shared: Session, kept: str, again: str) -> None:
    _, claim = held(shared)
    assert shared.complete(claim, kept) == COMPLETED
    with unchanged(shared):
        assert shared.complete(claim, again) == {**COMPLETED, "replayed": True}


@pytest.mark.parametrize("kept", DIFFERENT)
def test_zero_false_empty_and_null_are_results_of_their_own(shared: Session, kept: str) -> None:
    _, claim = held(shared)
    assert shared.complete(claim, kept) == COMPLETED
    assert shared.value("select output::text from pgflow.step_tasks") == kept
    assert shared.value("select output::text from pgflow.step_states where step_slug = 'a'") == kept
    with unchanged(shared):
        found = {other: shared.complete(claim, other) for other in DIFFERENT}
    conflict = {"outcome": "conflict", "settled_kind": "succeeded", "disposition": "completed"}
    assert found == {**dict.fromkeys(DIFFERENT, conflict), kept: {**COMPLETED, "replayed": True}}


def test_results_that_are_nothing_go_on_to_b_as_they_are(demo: Session) -> None:
    for kept in DIFFERENT:
        run, claim = held(demo)
        demo.complete(claim, kept)
        demo.settle_down(run)
        assert json.dumps(demo.claim(run, "b")["input"]["a"]) == kept


def test_sql_null_is_no_result_and_no_error(shared: Session) -> None:
    _, claim = held(shared)
    rejected = {"outcome": "rejected", "reason": "null_argument"}
    with unchanged(shared):
        assert shared.value("select pgflow.complete_claim_v2(%s, null)", claim) == rejected
        assert shared.value("select pgflow.complete_claim_v2(null, '1')") == rejected
        assert shared.fail(claim, None) == rejected
        assert shared.value("select pgflow.fail_claim_v2(null, 'x')") == rejected
    assert shared.complete(claim, "null") == COMPLETED
    with unchanged(shared):
        assert shared.value("select pgflow.complete_claim_v2(%s, null)", claim) == rejected


def test_an_empty_error_text_is_a_failure(shared: Session) -> None:
    run, claim = held(shared)
    assert shared.fail(claim, "") == FAILED
    assert (shared.claim_row(claim)["settlement_error"], shared.claim_row(claim)["settlement_bytes"]) == (
        "",
        2,
    )
    assert shared.state(run, "a")["error_message"] == ""


def test_a_long_error_is_cut_and_its_replay_is_told_by_all_of_it(shared: Session) -> None:
    run, claim = held(shared)
    error = "é" * 3_000
    assert shared.fail(claim, error + "1") == FAILED
    kept = "é" * 1_023 + "..."
    row = shared.claim_row(claim)
    assert (row["settlement_error"], row["settlement_bytes"]) == (kept, 6_003)
    assert row["settlement_sha256"] == sha(f'"{error}1"')
    assert shared.task(run, "a")["error_message"] == shared.state(run, "a")["error_message"] == kept
    with unchanged(shared):
        assert shared.fail(claim, error + "1") == {**FAILED, "replayed": True}
        assert shared.fail(claim, error + "2")["outcome"] == "conflict"
        assert shared.fail(claim, kept)["outcome"] == "conflict"


# -- not eligible: asked before the payload ----------------------------------------------------------------


def everything_says(demo: Session, claim: UUID, expected: Row) -> None:
    """No settlement of whatever kind and size gets anything else, or changes anything."""
    assert answers(demo, claim) == dict.fromkeys(SETTLEMENTS, expected)


def test_a_claim_that_never_was_is_unknown(shared: Session) -> None:
    everything_says(shared, uuid4(), {"outcome": "stale", "reason": "unknown"})


def test_a_claim_that_was_recovered_is_stale_also_after_a_takeover(shared: Session) -> None:
    run, claim = held(shared)
    shared.expire(claim)
    shared.recover(run, "a", claim)
    everything_says(shared, claim, {"outcome": "stale", "reason": "revoked"})
    second = shared.claimed(run, "a")
    everything_says(shared, claim, {"outcome": "stale", "reason": "revoked"})
    assert shared.complete(second, 2) == COMPLETED
    everything_says(shared, claim, {"outcome": "stale", "reason": "revoked"})


def test_an_active_claim_of_a_run_that_is_over_is_terminal(shared: Session) -> None:
    _, claim = held(shared)
    with without_triggers(shared):
        shared.execute("update pgflow.runs set status = 'failed', failed_at = clock_timestamp()")
    everything_says(shared, claim, {"outcome": "terminal", "reason": "run", "status": "failed"})


NOT_STARTED = {
    "created": "status = 'created', remaining_tasks = null, started_at = null",
    "completed": "status = 'completed', remaining_tasks = 0, completed_at = clock_timestamp()",
    "failed": "status = 'failed', failed_at = clock_timestamp()",
    "skipped": "status = 'skipped', remaining_tasks = null, skipped_at = clock_timestamp(),"
    " skip_reason = 'condition_unmet'",
}


@pytest.mark.parametrize("status", NOT_STARTED)
def test_an_active_claim_of_a_step_that_is_not_started_is_terminal(shared: Session, status: str) -> None:
    _, claim = held(shared)
    shared.execute(f"update pgflow.step_states set {NOT_STARTED[status]} where step_slug = 'a'")
    everything_says(shared, claim, {"outcome": "terminal", "reason": "step", "status": status})


@pytest.mark.parametrize("change", ["status = 'queued'", "current_claim_id = null", "status = 'cancelled'"])
def test_an_active_claim_that_is_not_its_tasks_is_stale(shared: Session, change: str) -> None:
    _, claim = held(shared)
    shared.execute(f"update pgflow.step_tasks set {change}")
    everything_says(shared, claim, {"outcome": "stale", "reason": "not_current"})


# -- after the lease ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTLEMENTS)
def test_the_first_settlement_is_accepted_after_the_lease_when_it_comes_before_the_revocation(
    shared: Session, name: str
) -> None:
    run, claim = held(shared)
    shared.expire(claim)
    outcome = SETTLEMENTS[name](shared, claim)
    assert outcome["outcome"] == "accepted"
    with unchanged(shared):
        assert shared.recover(run, "a", claim) == {
            "outcome": "settled",
            "disposition": outcome["disposition"],
        }


@pytest.mark.parametrize("name", SETTLEMENTS)
def test_the_first_settlement_is_stale_when_the_revocation_came_before_it(shared: Session, name: str) -> None:
    run, claim = held(shared)
    shared.expire(claim)
    shared.recover(run, "a", claim)
    with unchanged(shared):
        assert SETTLEMENTS[name](shared, claim) == {"outcome": "stale", "reason": "revoked"}
    assert shared.claim(run, "a")["outcome"] == "claimed"


# -- work that waits, or is in attention -------------------------------------------------------------------

BACK_OFF = (
    "update pgflow.run_work set state = 'retry_wait', failure_count = 3, last_error = 'x',"
    " last_error_sqlstate = 'XX000', last_failed_at = now(), next_attempt_at = now() + interval '1 h'"
)
ATTENTION = (
    "update pgflow.run_work set state = 'attention', attention_at = now(),"
    " attention_reason = 'message_missing'"
)


def test_a_success_leaves_back_off_as_it_is_and_adds_its_request(demo: Session) -> None:
    run, _, claim = held_b(demo)
    demo.request(run)
    demo.execute(BACK_OFF)
    with watching(demo) as seen:
        assert demo.complete(claim, 1) == COMPLETED
    assert seen.changed["run_work"] == {(run,): {"requested_generation": 3}}
    assert demo.reconcile(run)["outcome"] == "waiting"


def test_a_success_of_pending_work_adds_its_request_and_keeps_the_date_of_the_first(demo: Session) -> None:
    run, _, claim = held_b(demo)
    demo.request(run)
    with watching(demo) as seen:
        assert demo.complete(claim, 1) == COMPLETED
    assert seen.changed["run_work"] == {(run,): {"requested_generation": 3}}


def test_a_success_leaves_attention_as_it_is(demo: Session) -> None:
    run, _, claim = held_b(demo)
    demo.execute(ATTENTION)
    with watching(demo) as seen:
        assert demo.complete(claim, 1) == COMPLETED
    assert seen.changed["run_work"] == {(run,): {"requested_generation": 2, "requested_at": seen.now}}
    with unchanged(demo):
        assert demo.reconcile(run) == {
            "outcome": "attention",
            "run_id": str(run),
            "reason": "message_missing",
        }
    assert demo.run(run)["status"] == "started"


@pytest.mark.parametrize("name", ["failure", "oversize"])
def test_a_failure_in_attention_ends_the_run_and_attention_stays(demo: Session, name: str) -> None:
    run, _, claim = held_b(demo)
    demo.execute(ATTENTION)
    with watching(demo) as seen:
        assert SETTLEMENTS[name](demo, claim)["outcome"] == "accepted"
    assert seen.changed["run_work"] == {(run,): {"requested_generation": 2, "processed_generation": 2}}
    assert (demo.run(run)["status"], demo.work(run)["state"]) == ("failed", "attention")
    assert demo.messages() == []
    with unchanged(demo):
        assert demo.reconcile(run)["outcome"] == "attention"


def test_a_failure_ends_a_back_off(demo: Session) -> None:
    run, _, claim = held_b(demo)
    demo.request(run)
    demo.execute(BACK_OFF)
    with watching(demo) as seen:
        assert demo.fail(claim) == FAILED
    assert seen.changed["run_work"] == {
        (run,): {
            "state": "clean",
            "requested_generation": 3,
            "processed_generation": 3,
            "requested_at": None,
            "failure_count": 0,
            "next_attempt_at": None,
        }
    }


def test_a_failure_ends_pending_work(demo: Session) -> None:
    run, _, claim = held_b(demo)
    demo.request(run)
    with watching(demo) as seen:
        assert demo.fail(claim) == FAILED
    assert seen.changed["run_work"] == {
        (run,): {
            "state": "clean",
            "requested_generation": 3,
            "processed_generation": 3,
            "requested_at": None,
        }
    }


# -- counters and hints ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETTLEMENTS)
def test_counters_of_protocol_1_are_never_used(shared: Session, name: str) -> None:
    run, claim = held(shared)
    shared.expire(claim)
    shared.recover(run, "a", claim)
    SETTLEMENTS[name](shared, shared.claimed(run, "a"))
    task = shared.task(run, "a")
    assert (task["attempts_count"], task["requeued_count"]) == (0, 0)
    assert (task["last_worker_id"], task["last_requeued_at"], task["permanently_stalled_at"]) == (None,) * 3
    # Claims, handler's failures and lost executors are counted apart, from rows.
    counts = shared.row(
        "select count(*) as claims, count(*) filter (where disposition = 'failed') as failures,"
        " count(*) filter (where revoked_reason = 'lease_lost') as lost from pgflow.task_claims"
    )
    assert counts == {"claims": 2, "failures": int(name == "failure"), "lost": 1}


@pytest.mark.parametrize("name", SETTLEMENTS)
def test_events_that_cannot_be_sent_leave_a_settlement_accepted(demo: Session, name: str) -> None:
    run, claim = held(demo)
    break_hints(demo)
    warnings: list[str | None] = []
    demo.connection.add_notice_handler(lambda notice: warnings.append(notice.message_primary))
    outcome = SETTLEMENTS[name](demo, claim)
    assert outcome["outcome"] == "accepted"
    sent = ["step:completed"] if name == "success" else ["step:failed", "run:failed"]
    assert warnings == [f"event {event} of run {run} was not sent: no events today" for event in sent]
    assert demo.claim_row(claim)["disposition"] == outcome["disposition"]
    assert (demo.messages(), demo.archived()) == ([], [1])
    assert demo.run(run)["status"] == ("started" if name == "success" else "failed")


def test_an_event_that_fails_an_assertion_leaves_a_settlement_accepted(demo: Session) -> None:
    """PL/pgSQL's OTHERS does not catch it."""
    _run, claim = held(demo)
    demo.execute(
        "create or replace function realtime.send("
        "  payload jsonb, event text, topic text, private boolean default true"
        ") returns void language plpgsql as $$begin assert false, 'no events'; end$$"
    )
    assert demo.complete(claim, 1)["outcome"] == "accepted"
    assert demo.claim_row(claim)["disposition"] == "completed"
