"""reconcile_one_run and request_reconciliation_v2: chunks that commit, from what the rows say."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.dirty_runs.changes import unchanged, watching, without_triggers
from tests.dirty_runs.protocol import Session
from tests.dirty_runs.transitions.conftest import Queues, break_hints
from tests.moments import moment

Open = Callable[[], Session]


def impatient(session: Session) -> Session:
    """A processor that fails where it would wait for a lock, instead of waiting for the test."""
    session.execute("set lock_timeout = '5s'")
    return session


def settled_a(session: Session, output: object = 1) -> UUID:
    """A run whose A is completed, its work pending."""
    run = session.started()
    session.complete(session.claimed(run, "a"), output)
    return run


def settled_b(session: Session, output: object = 2) -> UUID:
    """A run whose B is completed too, its work pending again."""
    run = settled_a(session)
    assert session.settle_down(run) == ["dispatched", "clean"]
    session.complete(session.claimed(run, "b"), output)
    return run


def test_a_run_goes_from_its_start_to_its_output_in_committed_chunks(
    session: Session, queues: Queues
) -> None:
    run = session.started(given={"n": 1})
    assert session.settle_down(run) == ["idle"]  # A executes; nothing is left to do at once.
    session.complete(session.claimed(run, "a"), {"n": 2})
    assert session.settle_down(run) == ["dispatched", "clean"]
    claim = session.claim(run, "b")
    assert claim["input"] == {"a": {"n": 2}}
    session.complete(UUID(claim["claim_id"]), {"n": 3})
    assert session.settle_down(run) == ["finalized", "clean"]
    found = session.run(run)
    assert (found["status"], found["output"], found["remaining_steps"]) == ("completed", {"b": {"n": 3}}, 0)
    assert [session.messages(queue) for queue in (queues.a, queues.b)] == [[], []]
    archived = {queue: session.archived(queue) for queue in (queues.a, queues.b)}
    assert archived == ({"demo": [1, 2]} if queues.a == queues.b else {"demo__a": [1], "demo__b": [1]})
    work = session.work(run)
    assert (work["state"], work["requested_generation"], work["processed_generation"]) == ("clean", 2, 2)


# -- dispatch ----------------------------------------------------------------------------------------------


def test_a_dispatch_commits_task_message_and_state_and_stays_pending(
    session: Session, queues: Queues
) -> None:
    session.execute("update pgflow.steps set opt_start_delay = 40 where step_slug = 'b'")
    run = settled_a(session)
    message = 2 if queues.a == queues.b else 1
    with watching(session) as seen:
        outcome = session.reconcile(run)
    assert outcome == {"outcome": "dispatched", "step_slug": "b", "examined": 9, "run_id": str(run)}
    assert seen.added == {
        "step_tasks": {
            (run, "b", 0): {
                "flow_slug": "demo",
                "run_id": run,
                "step_slug": "b",
                "task_index": 0,
                "status": "queued",
                "queue_name": queues.b,
                "message_id": message,
                "attempts_count": 0,
                "requeued_count": 0,
                "queued_at": seen.now,
            }
        },
        f"q_{queues.b}": {
            (message,): {
                "msg_id": message,
                "read_ct": 0,
                "enqueued_at": seen.now,
                "vt": seen.after(40),
                "message": {"flow_slug": "demo", "run_id": str(run), "step_slug": "b", "task_index": 0},
            }
        },
    }
    assert seen.changed == {
        "step_states": {
            (run, "b"): {
                "status": "started",
                "started_at": seen.now,
                "remaining_tasks": 1,
                "remaining_deps": 0,
            }
        },
        "runs": {(run,): {"remaining_steps": 1}},
        # Nothing of the work row: it is pending, and processed is behind requested.
    }
    assert seen.removed == {}
    assert seen.events == [
        (
            "step:b:started",
            {
                "event_type": "step:started",
                "step_slug": "b",
                "status": "started",
                "started_at": seen.now,
                "remaining_tasks": 1,
                "remaining_deps": 0,
            },
        )
    ]
    work = session.work(run)
    assert (work["state"], work["requested_generation"], work["processed_generation"]) == ("pending", 1, 0)


def test_a_dispatch_that_rolls_back_leaves_nothing_and_its_replay_has_one_effect(
    demo: Session, open_session: Open
) -> None:
    run = settled_a(demo)
    observer = open_session()
    with unchanged(observer):
        with demo.connection.transaction(force_rollback=True):
            assert demo.reconcile(run)["outcome"] == "dispatched"
            assert (demo.task(run, "b")["status"], demo.messages()) == ("queued", [2])
        assert observer.reconcile(uuid4())["outcome"] == "unknown"
    # The message's number is used up, the message was never there.
    assert demo.reconcile(run)["outcome"] == "dispatched"
    assert (demo.messages(), demo.task(run, "b")["message_id"]) == ([3], 3)


def test_a_processor_that_goes_after_a_dispatch_is_followed_by_another(
    demo: Session, open_session: Open
) -> None:
    run = settled_a(demo)
    first = open_session()
    assert first.reconcile(run)["outcome"] == "dispatched"
    first.close()
    work = demo.work(run)
    assert (work["state"], work["requested_generation"], work["processed_generation"]) == ("pending", 1, 0)
    dispatched = demo.task(run, "b")

    second = open_session()
    with watching(second) as seen:
        assert second.reconcile(run)["outcome"] == "clean"
    assert seen.tables() == {"run_work"}
    assert second.settle_down(run) == ["idle"]
    assert (demo.task(run, "b"), demo.messages()) == (dispatched, [2])


def test_counters_are_what_the_rows_say_and_not_what_was_counted(demo: Session) -> None:
    run = settled_a(demo)
    with without_triggers(demo):
        demo.execute("update pgflow.runs set remaining_steps = 7")
        demo.execute("update pgflow.step_states set remaining_deps = 5 where step_slug = 'b'")
    assert demo.reconcile(run)["outcome"] == "dispatched"
    assert (demo.run(run)["remaining_steps"], demo.state(run, "b")["remaining_deps"]) == (1, 0)


def test_a_counter_at_zero_does_not_start_a_step_whose_dependency_is_not_completed(demo: Session) -> None:
    run = demo.started()
    demo.execute("update pgflow.step_states set remaining_deps = 0 where step_slug = 'b'")
    demo.request(run)
    with watching(demo) as seen:
        assert demo.reconcile(run)["outcome"] == "clean"
    assert seen.tables() == {"run_work"}
    assert demo.state(run, "b")["status"] == "created"


def test_a_dependency_without_a_row_is_not_completed(demo: Session) -> None:
    run = settled_a(demo)
    with without_triggers(demo):
        demo.execute("delete from pgflow.step_states where step_slug = 'a'")
    with watching(demo) as seen:
        assert demo.reconcile(run)["outcome"] == "clean"
    assert seen.tables() == {"run_work", "runs"}
    assert (demo.state(run, "b")["status"], demo.messages()) == ("created", [])


def test_events_that_cannot_be_sent_do_not_fail_a_chunk(demo: Session) -> None:
    run = settled_a(demo)
    break_hints(demo)
    assert demo.settle_down(run) == ["dispatched", "clean"]
    demo.complete(demo.claimed(run, "b"), 2)
    assert demo.settle_down(run) == ["finalized", "clean"]
    assert (demo.work(run)["failure_count"], demo.work(run)["last_error"]) == (0, None)


# -- clean -------------------------------------------------------------------------------------------------


def test_a_fixed_point_is_processed_and_only_then_b_may_be_claimed(session: Session, queues: Queues) -> None:
    run = settled_a(session)
    assert session.reconcile(run)["outcome"] == "dispatched"
    with unchanged(session):
        # A worker may read the message, which here it has not; it is no permission.
        assert session.claim(run, "b") == {
            "outcome": "blocked",
            "reason": "pending",
            "attention_reason": None,
        }
    with watching(session) as seen:
        outcome = session.reconcile(run)
    assert outcome == {"outcome": "clean", "examined": 10, "run_id": str(run)}
    assert seen.changed == {
        "run_work": {(run,): {"state": "clean", "processed_generation": 1, "requested_at": None}}
    }
    assert (seen.added, seen.removed, seen.events) == ({}, {}, [])
    assert session.claim(run, "b")["outcome"] == "claimed"


def test_a_message_that_was_read_before_the_clean_commit_gives_no_claim(
    demo: Session, open_session: Open
) -> None:
    run = settled_a(demo)
    demo.reconcile(run)
    worker = open_session()
    (read,) = worker.rows("select msg_id from pgmq.read('demo', 30, 5)")
    with unchanged(demo):
        outcome = worker.claim(run, "b", [read["msg_id"]])
        assert (outcome["outcome"], outcome["reason"]) == ("blocked", "pending")
        assert demo.value("select count(*) from pgflow.task_claims where step_slug = 'b'") == 0
    demo.reconcile(run)
    assert worker.claim(run, "b", [read["msg_id"]])["claim_number"] == 1
    with unchanged(demo):
        assert open_session().claim(run, "b")["outcome"] == "held"


def test_a_start_delay_counts_from_the_dispatch_and_clean_does_not_shift_it(session: Session) -> None:
    session.define(delay=600)
    run = settled_a(session)
    session.reconcile(run)
    dispatched = session.row("select * from pgmq.q_demo")
    queued_at = session.task(run, "b")["queued_at"]
    assert timedelta(seconds=600) <= dispatched["vt"] - queued_at < timedelta(seconds=610)
    assert session.reconcile(run)["outcome"] == "clean"
    session.request(run)
    assert session.settle_down(run) == ["clean"]
    assert session.row("select * from pgmq.q_demo") == dispatched
    assert session.task(run, "b")["queued_at"] == queued_at
    with without_triggers(session):  # All but ten seconds of the delay are over, counted from the dispatch.
        session.execute(
            "update pgflow.step_tasks set queued_at = now() - interval '590 s' where step_slug = 'b'"
        )
    with unchanged(session):
        assert session.claim(run, "b")["reason"] == "start_delay"
    with without_triggers(session):
        session.execute(
            "update pgflow.step_tasks set queued_at = now() - interval '600 s' where step_slug = 'b'"
        )
    assert session.claim(run, "b")["outcome"] == "claimed"


def test_rules_that_run_again_on_processed_state_change_nothing(session: Session, queues: Queues) -> None:
    session.execute("update pgflow.steps set opt_start_delay = 300 where step_slug = 'b'")

    def again(run: UUID) -> None:
        before = session.work(run)
        with watching(session) as seen:
            asked = session.request(run)
        generation = before["requested_generation"] + 1
        assert asked == {"outcome": "requested", "state": "pending", "requested_generation": generation}
        assert seen.changed == {
            "run_work": {
                (run,): {"state": "pending", "requested_generation": generation, "requested_at": seen.now}
            }
        }
        with watching(session) as seen:
            assert session.reconcile(run)["outcome"] == "clean"
        # Not a counter, not a task, not a message, not its time.
        assert seen.changed == {
            "run_work": {(run,): {"state": "clean", "processed_generation": generation, "requested_at": None}}
        }
        assert (seen.added, seen.removed, seen.events) == ({}, {}, [])

    run = session.started()
    again(run)
    first = session.claimed(run, "a")
    again(run)
    session.complete(first, 1)
    session.settle_down(run)
    for _ in range(3):
        again(run)
    assert session.messages(queues.b) == [2 if queues.a == queues.b else 1]


# -- generations -------------------------------------------------------------------------------------------


def test_requests_between_two_chunks_are_not_lost(demo: Session, open_session: Open) -> None:
    processor = open_session()
    run = settled_a(demo)
    assert processor.reconcile(run)["outcome"] == "dispatched"
    asked_first = demo.work(run)["requested_at"]
    assert demo.request(run) == {"outcome": "requested", "state": "pending", "requested_generation": 2}
    assert demo.work(run)["requested_at"] == asked_first
    assert processor.reconcile(run)["outcome"] == "clean"
    work = demo.work(run)
    assert (work["requested_generation"], work["processed_generation"]) == (2, 2)


def test_a_settlement_before_the_processor_is_in_the_generation_that_it_captures(
    demo: Session, open_session: Open
) -> None:
    settler, processor = open_session(), open_session()
    run = settled_a(demo)
    demo.settle_down(run)
    claim = demo.claimed(run, "b")
    demo.request(run)
    assert settler.complete(claim, 2)["outcome"] == "accepted"
    assert processor.reconcile(run)["outcome"] == "finalized"
    assert processor.reconcile(run)["outcome"] == "clean"
    work = demo.work(run)
    assert (work["state"], work["requested_generation"], work["processed_generation"]) == ("clean", 3, 3)


def test_a_settlement_after_the_processor_is_left_pending(demo: Session, open_session: Open) -> None:
    settler, processor = open_session(), open_session()
    run = settled_a(demo)
    demo.settle_down(run)
    claim = demo.claimed(run, "b")
    demo.request(run)
    assert processor.reconcile(run)["outcome"] == "clean"
    assert settler.complete(claim, 2)["outcome"] == "accepted"
    work = demo.work(run)
    assert (work["state"], work["requested_generation"], work["processed_generation"]) == ("pending", 3, 2)
    assert processor.settle_down(run) == ["finalized", "clean"]


def test_a_settlement_that_meets_an_open_chunk_is_left_pending(demo: Session, open_session: Open) -> None:
    settler, processor = open_session(), open_session()
    run = settled_a(demo)
    demo.settle_down(run)
    claim = demo.claimed(run, "b")
    demo.request(run)
    with processor.connection.transaction():
        assert processor.reconcile(run)["outcome"] == "clean"
        settler.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            settler.complete(claim, 2)
    assert settler.complete(claim, 2)["outcome"] == "accepted"
    work = demo.work(run)
    assert (work["state"], work["requested_generation"], work["processed_generation"]) == ("pending", 3, 2)


def test_a_request_is_refused_where_there_is_nothing_to_reconcile(demo: Session) -> None:
    completed, failed = settled_b(demo), demo.started()
    demo.settle_down(completed)
    demo.fail(demo.claimed(failed, "a"))
    old = demo.value("select run_id from pgflow.start_flow('demo', '{}')")
    with unchanged(demo):
        assert demo.request(completed) == {"outcome": "terminal", "reason": "run", "status": "completed"}
        assert demo.request(failed) == {"outcome": "terminal", "reason": "run", "status": "failed"}
        assert demo.request(uuid4()) == {"outcome": "unknown", "reason": "run"}
        assert demo.value("select pgflow.request_reconciliation_v2(null)") == {
            "outcome": "unknown",
            "reason": "run",
        }
        assert demo.request(old) == {"outcome": "wrong_protocol", "protocol_version": 1}


def test_a_request_leaves_back_off_and_attention_as_they_are(demo: Session) -> None:
    waiting, stopped = poisoned(demo), demo.started()
    assert demo.reconcile(waiting)["outcome"] == "failed"
    demo.execute(
        "update pgflow.run_work set state = 'attention', attention_at = now(),"
        " attention_reason = 'message_missing' where run_id = %s",
        stopped,
    )
    with watching(demo) as seen:
        assert demo.request(waiting) == {
            "outcome": "requested",
            "state": "retry_wait",
            "requested_generation": 2,
        }
        assert demo.request(stopped) == {
            "outcome": "requested",
            "state": "attention",
            "requested_generation": 1,
        }
    assert seen.changed == {
        "run_work": {
            (waiting,): {"requested_generation": 2},
            (stopped,): {"requested_generation": 1, "requested_at": seen.now},
        }
    }


# -- finalise ----------------------------------------------------------------------------------------------


def test_a_run_whose_steps_are_over_is_finalised_once(session: Session, queues: Queues) -> None:
    run = settled_b(session, {"n": 3})
    with watching(session) as seen:
        outcome = session.reconcile(run)
    assert outcome == {"outcome": "finalized", "examined": 10, "run_id": str(run)}
    end = {"status": "completed", "output": {"b": {"n": 3}}, "completed_at": seen.now}
    assert seen.changed == {"runs": {(run,): {**end, "remaining_steps": 0}}}
    assert (seen.added, seen.removed) == ({}, {})
    assert seen.events == [("run:completed", {"event_type": "run:completed", "flow_slug": "demo", **end})]
    work = session.work(run)
    assert (work["state"], work["requested_generation"], work["processed_generation"]) == ("pending", 2, 1)

    with watching(session) as seen:
        assert session.reconcile(run) == {"outcome": "clean", "examined": 2, "run_id": str(run)}
    assert seen.changed == {
        "run_work": {(run,): {"state": "clean", "processed_generation": 2, "requested_at": None}}
    }
    assert (seen.added, seen.removed, seen.events) == ({}, {}, [])
    with unchanged(session):
        assert session.reconcile(run) == {"outcome": "idle", "run_id": str(run), "busy": 0}
        assert session.reconcile() == {"outcome": "idle", "busy": 0}
    assert session.messages(queues.b) == []


@pytest.mark.parametrize("output", ["0", "false", '""', "null"])
def test_the_output_of_the_leaf_is_the_output_of_the_run_also_when_it_is_nothing(
    demo: Session, output: str
) -> None:
    run = settled_b(demo, output)
    assert demo.settle_down(run) == ["finalized", "clean"]
    assert demo.value("select output::text from pgflow.runs") == f'{{"b": {output}}}'


def test_a_result_survives_the_loss_of_the_processor(demo: Session, open_session: Open) -> None:
    run = settled_b(demo, ["kept"])
    lost = open_session()
    lost.execute("begin")
    assert lost.reconcile(run)["outcome"] == "finalized"
    lost.close()  # Before its commit.
    assert (demo.run(run)["status"], demo.task(run, "b")["output"]) == ("started", ["kept"])
    another = open_session()
    assert another.settle_down(run) == ["finalized", "clean"]
    assert demo.run(run)["output"] == {"b": ["kept"]}


NOT_COMPLETED = {
    "failed": "update pgflow.step_states set output = null, completed_at = null, remaining_tasks = null,"
    " status = 'failed', failed_at = clock_timestamp() where step_slug = 'b'",
    "skipped": "update pgflow.step_states set output = null, completed_at = null, remaining_tasks = null,"
    " status = 'skipped', skipped_at = clock_timestamp(), skip_reason = 'condition_unmet'"
    " where step_slug = 'b'",
    "missing": "delete from pgflow.step_states where step_slug = 'b'",
}


@pytest.mark.parametrize("change", NOT_COMPLETED.values(), ids=NOT_COMPLETED)
def test_a_run_is_not_completed_unless_every_step_is(demo: Session, change: str) -> None:
    run = settled_b(demo)
    with without_triggers(demo):  # No call of the protocol leaves such rows.
        demo.execute(change)
    outcome = demo.reconcile(run)
    assert (outcome["outcome"], outcome["sqlstate"]) == ("failed", "PF007")
    assert outcome["error"] == f"run {run} has 1 completed steps and no other to wait for: not 2"
    assert (demo.run(run)["status"], demo.run(run)["output"]) == ("started", None)


# -- outcomes that change nothing --------------------------------------------------------------------------


def test_a_run_that_is_locked_is_busy_and_is_not_waited_for(demo: Session, open_session: Open) -> None:
    run = settled_a(demo)
    with demo.connection.transaction(), unchanged(demo):
        demo.execute("select from pgflow.runs for update")
        for wanted in (run, None):
            assert impatient(open_session()).reconcile(wanted) == {"outcome": "busy", "busy": 1}
    assert demo.reconcile()["outcome"] == "dispatched"


def test_two_processors_of_one_run_never_dispatch_twice(demo: Session, open_session: Open) -> None:
    run = settled_a(demo)
    first, second = open_session(), impatient(open_session())
    with first.connection.transaction():
        assert first.reconcile(run)["outcome"] == "dispatched"
        assert second.reconcile(run)["outcome"] == "busy"
        assert second.reconcile()["outcome"] == "busy"
    assert second.reconcile()["outcome"] == "clean"
    assert first.reconcile()["outcome"] == "idle"
    assert (demo.messages(), demo.value("select count(*) from pgflow.step_tasks where step_slug = 'b'")) == (
        [2],
        1,
    )


def test_a_locked_run_lets_another_go_on(demo: Session, open_session: Open) -> None:
    first, second = settled_a(demo), settled_a(demo)
    with demo.connection.transaction():
        demo.execute("select from pgflow.runs where run_id = %s for update", first)
        outcome = impatient(open_session()).reconcile()
    assert (outcome["outcome"], outcome["run_id"]) == ("dispatched", str(second))
    assert demo.work(first)["state"] == "pending"


def test_the_run_that_has_been_due_longest_is_chosen(demo: Session) -> None:
    runs = [settled_a(demo) for _ in range(3)]
    chosen = []
    for _ in range(6):
        outcome = demo.reconcile()
        chosen.append((outcome["outcome"], runs.index(UUID(outcome["run_id"]))))
    assert chosen == [(outcome, place) for place in range(3) for outcome in ("dispatched", "clean")]
    with unchanged(demo):
        assert demo.reconcile() == {"outcome": "idle", "busy": 0}


def test_what_is_not_there_or_not_of_this_protocol_is_told(demo: Session) -> None:
    old = demo.value("select run_id from pgflow.start_flow('demo', '{}')")
    with unchanged(demo):
        assert demo.reconcile() == {"outcome": "idle", "busy": 0}
        assert demo.reconcile(uuid4()) == {"outcome": "unknown", "reason": "run"}
        assert demo.reconcile(old) == {"outcome": "wrong_protocol", "protocol_version": 1}


def test_clean_work_is_idle(demo: Session) -> None:
    run = demo.started()
    with unchanged(demo):
        assert demo.reconcile(run) == {"outcome": "idle", "run_id": str(run), "busy": 0}


def test_a_second_chunk_in_one_transaction_is_rejected_whichever_run_it_is_for(demo: Session) -> None:
    first, second = settled_a(demo), settled_a(demo)
    rejected = {"outcome": "rejected", "reason": "one_chunk_per_transaction"}
    with demo.connection.transaction():
        assert demo.reconcile(first)["outcome"] == "dispatched"
        with unchanged(demo):
            for wanted in (first, second, None, uuid4()):
                assert demo.reconcile(wanted) == rejected
    assert demo.reconcile(second)["outcome"] == "dispatched"
    # Nor in one statement.
    rows = demo.rows(
        "select pgflow.reconcile_one_run(run) as made from unnest(array[%s, %s]::uuid[]) as r (run)",
        first,
        second,
    )
    assert [row["made"]["outcome"] for row in rows] == ["clean", "rejected"]


def test_a_chunk_that_was_rolled_back_to_a_savepoint_does_not_count(demo: Session) -> None:
    first, second = settled_a(demo), settled_a(demo)
    with demo.connection.transaction():
        with demo.connection.transaction(force_rollback=True):
            assert demo.reconcile(first)["outcome"] == "dispatched"
        assert demo.reconcile(second)["outcome"] == "dispatched"
    assert (demo.work(first)["state"], demo.state(first, "b")["status"]) == ("pending", "created")


# -- errors ------------------------------------------------------------------------------------------------


def poisoned(session: Session) -> UUID:
    """A run whose B cannot be dispatched: an insert of its task raises."""
    run = settled_a(session)
    session.execute(
        "create or replace function public.poison() returns trigger language plpgsql as"
        " $$begin if new.step_slug = 'b' and new.run_id = tg_argv[0]::uuid then"
        "   raise exception 'no task for % today', new.step_slug using errcode = '22012'; end if;"
        " return new; end$$"
    )
    session.execute(
        f"create trigger poison before insert on pgflow.step_tasks"
        f" for each row execute function public.poison('{run}')"
    )
    return run


def heal(session: Session) -> None:
    session.execute("drop trigger poison on pgflow.step_tasks")


def poison_the_end(session: Session) -> None:
    """No run can be completed any more."""
    session.execute(
        "create function public.poison_the_end() returns trigger language plpgsql as"
        " $$begin raise exception using message = repeat('é', 3000), errcode = 'P0001'; end$$"
    )
    session.execute(
        "create trigger poison_the_end before update on pgflow.runs for each row"
        " when (new.status = 'completed') execute function public.poison_the_end()"
    )


def test_a_failed_assertion_is_a_failed_chunk_and_holds_up_no_other_run(demo: Session) -> None:
    """PL/pgSQL's OTHERS does not catch it."""
    run, other = settled_a(demo), settled_a(demo)
    demo.execute(
        "create function public.assertive() returns trigger language plpgsql as"
        " $$begin assert new.run_id <> tg_argv[0]::uuid, 'not this one'; return new; end$$"
    )
    demo.execute(
        "create trigger assertive before insert on pgflow.step_tasks"
        f" for each row execute function public.assertive('{run}')"
    )
    first, second = demo.reconcile(), demo.reconcile()
    assert (first["run_id"], first["outcome"], first["sqlstate"]) == (str(run), "failed", "P0004")
    assert (second["run_id"], second["outcome"]) == (str(other), "dispatched")
    assert demo.work(run)["last_error"] == "not this one"


def test_a_failed_chunk_leaves_the_graph_and_records_its_error(session: Session, queues: Queues) -> None:
    run = poisoned(session)
    with watching(session) as seen:
        outcome = session.reconcile(run)
    retry_at = session.work(run)["next_attempt_at"]
    assert moment(outcome.pop("next_attempt_at")) == retry_at
    assert outcome == {
        "outcome": "failed",
        "run_id": str(run),
        "state": "retry_wait",
        "sqlstate": "22012",
        "error": "no task for b today",
        "failure_count": 1,
    }
    # State, remaining_steps and message of the chunk are gone; its error is there.
    assert seen.changed == {
        "run_work": {
            (run,): {
                "state": "retry_wait",
                "failure_count": 1,
                "last_failed_at": seen.now,
                "last_error_sqlstate": "22012",
                "last_error": "no task for b today",
                "next_attempt_at": seen.after(1),
            }
        }
    }
    assert (seen.added, seen.removed, seen.events) == ({}, {}, [])
    with unchanged(session):
        for wanted, expected in ((run, "waiting"), (None, "idle")):
            assert session.reconcile(wanted)["outcome"] == expected


def test_a_back_off_doubles_and_progress_ends_it(demo: Session) -> None:
    run = poisoned(demo)
    waits = []
    for _ in range(4):
        outcome = demo.reconcile(run)
        work = demo.work(run)
        assert (outcome["outcome"], outcome["state"]) == ("failed", "retry_wait")
        waits.append(round((work["next_attempt_at"] - work["last_failed_at"]).total_seconds()))
        with unchanged(demo):
            waiting = demo.reconcile(run)
        assert moment(waiting.pop("next_attempt_at")) == work["next_attempt_at"]
        assert waiting == {"outcome": "waiting", "run_id": str(run)}
        demo.due(run)
    assert waits == [1, 2, 4, 8]
    heal(demo)
    with watching(demo) as seen:
        assert demo.reconcile()["outcome"] == "dispatched"
    # The last error stays to be read; nothing waits for it.
    assert seen.changed["run_work"] == {
        (run,): {"state": "pending", "failure_count": 0, "next_attempt_at": None}
    }
    assert (demo.work(run)["last_error_sqlstate"], demo.work(run)["last_error"]) == (
        "22012",
        "no task for b today",
    )
    assert demo.reconcile(run)["outcome"] == "clean"


def test_the_fifth_failure_in_a_row_asks_for_attention(demo: Session) -> None:
    run = poisoned(demo)
    for _ in range(4):
        assert demo.reconcile(run)["state"] == "retry_wait"
        demo.due(run)
    with watching(demo) as seen:
        outcome = demo.reconcile(run)
    assert outcome == {
        "outcome": "failed",
        "run_id": str(run),
        "state": "attention",
        "sqlstate": "22012",
        "error": "no task for b today",
        "failure_count": 5,
        "next_attempt_at": None,
    }
    assert seen.changed == {
        "run_work": {
            (run,): {
                "state": "attention",
                "failure_count": 5,
                "last_failed_at": seen.now,
                "next_attempt_at": None,
                "attention_at": seen.now,
                "attention_reason": "failures_exhausted",
            }
        }
    }
    heal(demo)
    archived = demo.archived()
    with unchanged(demo):
        for _ in range(2):
            assert demo.reconcile(run) == {
                "outcome": "attention",
                "run_id": str(run),
                "reason": "failures_exhausted",
            }
        assert demo.reconcile()["outcome"] == "idle"
    assert (demo.request(run)["state"], demo.archived()) == ("attention", archived)
    with pytest.raises(psycopg.Error) as refusal:
        demo.execute(
            "update pgflow.run_work set state = 'pending', attention_at = null, attention_reason = null"
        )
    assert refusal.value.sqlstate == "PF006"


def test_failures_before_and_after_progress_are_not_added_up(demo: Session) -> None:
    run = poisoned(demo)
    for count in range(1, 5):
        assert demo.reconcile(run)["failure_count"] == count
        demo.due(run)
    heal(demo)
    assert demo.settle_down(run) == ["dispatched", "clean"]
    demo.complete(demo.claimed(run, "b"), 2)
    poison_the_end(demo)
    for count in range(1, 5):
        outcome = demo.reconcile(run)
        assert (outcome["failure_count"], outcome["state"]) == (count, "retry_wait")
        demo.due(run)


def test_a_request_while_a_chunk_waits_keeps_its_back_off(demo: Session) -> None:
    run = poisoned(demo)
    demo.reconcile(run)
    before = demo.work(run)
    demo.request(run)
    assert demo.work(run) == {**before, "requested_generation": 2}
    heal(demo)
    demo.due(run)
    assert demo.settle_down(run) == ["dispatched", "clean"]
    assert demo.work(run)["processed_generation"] == 2


def test_earlier_chunks_stay_when_a_later_one_fails(demo: Session) -> None:
    run = settled_b(demo)
    poison_the_end(demo)
    with watching(demo) as seen:
        outcome = demo.reconcile(run)
    assert set(seen.changed) == {"run_work"}
    assert (outcome["outcome"], outcome["error"]) == ("failed", "é" * 1_023 + "...")
    assert (demo.state(run, "b")["output"], demo.run(run)["remaining_steps"]) == (2, 1)
    demo.execute("drop trigger poison_the_end on pgflow.runs")
    demo.due(run)
    assert demo.settle_down(run) == ["finalized", "clean"]
    assert demo.run(run)["output"] == {"b": 2}


def test_a_poisoned_run_lets_another_go_on(demo: Session, open_session: Open) -> None:
    run, healthy = poisoned(demo), settled_a(demo)
    processor = open_session()
    outcomes = [processor.reconcile() for _ in range(4)]
    assert [(outcome["outcome"], outcome.get("run_id")) for outcome in outcomes] == [
        ("failed", str(run)),
        ("dispatched", str(healthy)),
        ("clean", str(healthy)),
        ("idle", None),
    ]
    demo.due(run)
    again = processor.reconcile()
    assert (again["outcome"], again["failure_count"]) == ("failed", 2)


def test_errors_are_committed_although_the_chunk_is_rolled_back(demo: Session, open_session: Open) -> None:
    run = poisoned(demo)
    processor = open_session()
    with processor.connection.transaction():
        assert processor.reconcile(run)["outcome"] == "failed"
        assert demo.work(run)["failure_count"] == 0
    processor.close()
    assert (demo.work(run)["failure_count"], demo.work(run)["last_error_sqlstate"]) == (1, "22012")
    assert (demo.state(run, "b")["status"], demo.messages()) == ("created", [])


def test_a_cancelled_chunk_is_not_counted_as_a_failure(demo: Session) -> None:
    run = settled_a(demo)
    demo.execute(
        "create function public.sleep() returns trigger language plpgsql as"
        " $$begin perform pg_sleep(60); return new; end$$"
    )
    demo.execute(
        "create trigger sleep before insert on pgflow.step_tasks for each row execute function public.sleep()"
    )
    demo.execute("set statement_timeout = '100ms'")
    with unchanged(demo), pytest.raises(psycopg.errors.QueryCanceled):
        demo.reconcile(run)
    assert demo.work(run)["failure_count"] == 0


def test_a_definition_that_has_changed_fails_every_chunk_and_dispatches_nothing(demo: Session) -> None:
    run = settled_a(demo)
    with without_triggers(demo):
        demo.execute("update pgflow.steps set opt_start_delay = 1 where step_slug = 'b'")
    outcome = demo.reconcile(run)
    assert (outcome["outcome"], outcome["sqlstate"]) == ("failed", "PF007")
    assert outcome["error"] == f'flow "demo" is no longer what run {run} began with'
    assert (demo.state(run, "b")["status"], demo.messages()) == ("created", [])


def test_a_failed_run_is_neither_dispatched_nor_finalised(demo: Session) -> None:
    run = settled_a(demo)
    with without_triggers(demo):
        demo.execute("update pgflow.runs set status = 'failed', failed_at = clock_timestamp()")
    with watching(demo) as seen:
        assert demo.reconcile(run) == {"outcome": "clean", "examined": 2, "run_id": str(run)}
    assert seen.changed == {
        "run_work": {(run,): {"state": "clean", "processed_generation": 1, "requested_at": None}}
    }
    assert (seen.added, seen.events) == ({}, [])


def test_a_step_that_has_started_is_not_dispatched_again_whatever_its_message(demo: Session) -> None:
    run = settled_a(demo)
    demo.settle_down(run)
    demo.execute("select pgmq.delete('demo', 2)")
    demo.request(run)
    with watching(demo) as seen:
        assert demo.settle_down(run) == ["clean"]
    assert seen.tables() == {"run_work"}


def test_a_created_step_that_has_a_task_is_not_dispatched_again(demo: Session) -> None:
    run = settled_a(demo)
    demo.settle_down(run)
    demo.execute(
        "update pgflow.step_states set status = 'created', remaining_tasks = null, started_at = null"
        " where step_slug = 'b'"
    )
    demo.request(run)
    with watching(demo) as seen:
        assert demo.reconcile(run)["outcome"] == "clean"
    assert seen.tables() == {"run_work"}
