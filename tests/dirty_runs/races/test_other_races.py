"""What meets outside of one run: both protocols, runs of two flows, processors, definitions, and pruning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.dirty_runs.protocol import WORKER, Session
from tests.dirty_runs.races.conftest import Meeting
from tests.queue_identity.races.conftest import CAPABLE, shape

from pgflow_migrate import resources

both_ends = pytest.mark.parametrize("commit", [True, False], ids=["committed", "rolled back"])


def sqlstate(call: Callable[[], Any]) -> Any:
    """The result of a call, the SQLSTATE if it fails; a deadlock is no answer."""
    try:
        return call()
    except psycopg.errors.DeadlockDetected:
        raise
    except psycopg.Error as error:
        return error.sqlstate


# -- protocol 1 beside protocol 2 ------------------------------------------------------------------


def start_v1(session: Session, flow: str, run: UUID | None = None) -> UUID:
    started: UUID = session.row("select run_id from pgflow.start_flow(%s, '{}', %s)", flow, run)["run_id"]
    return started


def protocols(meeting: Meeting, flow: str) -> dict[UUID, int]:
    """The protocol of each run of a flow: 2 exactly when it has a work row."""
    runs = meeting.watcher.rows(
        "select run.run_id, coalesce(work.protocol_version, 1) as protocol"
        " from pgflow.runs run left join pgflow.run_work work using (run_id) where run.flow_slug = %s",
        flow,
    )
    return {row["run_id"]: row["protocol"] for row in runs}


def claim_v1(session: Session, flow: str, *ids: int) -> dict[str, Any]:
    """A batch claim of protocol 1: message ids by what became of them."""
    outcome = session.value(
        "select pgflow.claim_tasks(%s, %s, %s::bigint[], %s)", flow, flow, list(ids), WORKER
    )
    groups = {key: [int(one) for one in outcome[key]] for key in ("archived", "busy", "foreign", "deferred")}
    groups["claimed"] = [int(task["msg_id"]) for task in outcome["tasks"]]
    groups["other_protocol"] = [int(one) for one in outcome.get("other_protocol", [])]
    return {key: ids for key, ids in groups.items() if ids}


@pytest.fixture
def mixed(meeting: Meeting) -> tuple[str, UUID, UUID, int, int]:
    """A flow with a run of each protocol, its steps a queued: flow, runs of 1 and 2, their messages."""
    flow, watcher = meeting.new_flow(), meeting.watcher
    watcher.execute(
        "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, 'any', 'worker')"
        " on conflict do nothing",
        WORKER,
    )
    old, new = start_v1(watcher, flow), watcher.started(flow)
    return flow, old, new, watcher.task(old, "a")["message_id"], watcher.task(new, "a")["message_id"]


@both_ends
def test_a_batch_of_protocol_1_that_read_a_message_of_protocol_2_holds_its_claim_up_and_no_more(
    meeting: Meeting, mixed: tuple[str, UUID, UUID, int, int], commit: bool
) -> None:
    flow, old, new, old_id, new_id = mixed
    batch, claim = meeting.meet(
        lambda one: claim_v1(one, flow, old_id, new_id),
        lambda two: two.claim(new, "a", [new_id], queue=flow),
        commit=commit,
    )
    assert batch == {"claimed": [old_id], "other_protocol": [new_id]}
    assert (claim["outcome"], claim["msg_id"]) == ("claimed", str(new_id))
    task = meeting.watcher.task(old, "a")
    assert (task["status"], task["attempts_count"]) == (("started", 1) if commit else ("queued", 0))
    assert meeting.watcher.task(new, "a")["attempts_count"] == 0


@both_ends
def test_a_claim_of_protocol_2_holds_no_batch_of_protocol_1_up(
    meeting: Meeting, mixed: tuple[str, UUID, UUID, int, int], commit: bool
) -> None:
    flow, old, new, old_id, new_id = mixed
    claim, batch = meeting.meet(
        lambda one: one.claim(new, "a"),
        lambda two: claim_v1(two, flow, old_id, new_id),
        commit=commit,
        waits=False,
    )
    assert claim["outcome"] == "claimed"
    assert batch == {"claimed": [old_id], "other_protocol": [new_id]}
    assert meeting.watcher.task(old, "a")["status"] == "started"
    assert meeting.watcher.task(new, "a")["status"] == ("started" if commit else "queued")


@both_ends
@pytest.mark.parametrize("call", ["complete_task(%s, 'a', 0, '1')", "fail_task(%s, 'a', 0, 'no')"])
def test_a_callback_of_protocol_1_for_a_run_that_begins_meanwhile_changes_nothing(
    meeting: Meeting, call: str, commit: bool
) -> None:
    """It has looked for the run before there was one, and waits for its lock after that."""
    flow, run = meeting.new_flow(), uuid4()

    def start_and_claim(one: Session) -> UUID:
        one.execute("lock table pgflow.runs in exclusive mode")
        one.start(flow, run=run)
        return one.claimed(run, "a")

    token, refused = meeting.meet(
        start_and_claim,
        lambda two: sqlstate(lambda: two.rows(f"select task_index from pgflow.{call}", run)),
        commit=commit,
    )
    assert refused == ("PF005" if commit else [])
    if commit:
        task = meeting.watcher.task(run, "a")
        assert (task["status"], task["current_claim_id"], task["error_message"]) == ("started", token, None)
        assert meeting.watcher.state(run, "a")["status"] == "started"


@pytest.mark.parametrize("call", ["complete_task(%s, 'a', 0, '1')", "fail_task(%s, 'a', 0, 'no')"])
def test_nor_does_one_for_a_run_whose_id_is_used_again_meanwhile(meeting: Meeting, call: str) -> None:
    """It has seen a run of protocol 1; when it has the lock, the run of that id is another."""
    flow, run = meeting.new_flow(), uuid4()
    start_v1(meeting.watcher, flow, run)

    def start_again_and_claim(one: Session) -> UUID:
        one.execute("lock table pgflow.runs in exclusive mode")
        for table in ("step_tasks", "step_states", "runs"):
            one.execute(f"delete from pgflow.{table} where run_id = %s", run)
        one.start(flow, run=run)
        return one.claimed(run, "a")

    token, refused = meeting.meet(
        start_again_and_claim,
        lambda two: sqlstate(lambda: two.rows(f"select task_index from pgflow.{call}", run)),
        commit=True,
    )
    assert refused == "PF005"
    task = meeting.watcher.task(run, "a")
    assert (task["status"], task["current_claim_id"], task["error_message"]) == ("started", token, None)


BECOME_2 = "insert into pgflow.run_work (run_id, flow_slug, definition_sha256) values (%s, %s, sha256('any'))"


@both_ends
def test_a_run_that_begins_with_protocol_1_meanwhile_gets_no_work_row(meeting: Meeting, commit: bool) -> None:
    """Inserted before the run is there, and found by the foreign key, which looks later."""
    flow, run = meeting.new_flow(), uuid4()

    def start(one: Session) -> UUID:
        one.execute("select pg_advisory_xact_lock(4711)")
        return start_v1(one, flow, run)

    _, refused = meeting.meet(
        start,
        lambda two: sqlstate(
            lambda: two.rows(f"{BECOME_2} returning (select pg_advisory_xact_lock(4711))::text", run, flow)
        ),
        commit=commit,
    )
    assert refused == ("PF006" if commit else "23503")
    assert protocols(meeting, flow) == ({run: 1} if commit else {})


@both_ends
def test_a_work_row_waits_for_who_gives_its_run_steps(meeting: Meeting, commit: bool) -> None:
    flow, run = meeting.new_flow(), uuid4()
    meeting.watcher.execute(
        "insert into pgflow.runs (run_id, flow_slug, input, remaining_steps) values (%s, %s, '1', 2)",
        run, flow,
    )  # fmt: skip
    _, refused = meeting.meet(
        lambda one: one.execute(
            "insert into pgflow.step_states (flow_slug, run_id, step_slug, remaining_deps, initial_tasks)"
            " values (%s, %s, 'a', 0, 1)",
            flow, run,
        ),
        lambda two: sqlstate(lambda: two.execute(BECOME_2, run, flow)),
        commit=commit,
    )  # fmt: skip
    assert refused == ("PF006" if commit else None)
    assert protocols(meeting, flow) == {run: 1 if commit else 2}


def expired(meeting: Meeting, mixed: tuple[str, UUID, UUID, int, int]) -> UUID:
    """Both runs' tasks are held since long; the token of protocol 2's."""
    flow, old, new, old_id, _ = mixed
    watcher = meeting.watcher
    assert claim_v1(watcher, flow, old_id) == {"claimed": [old_id]}
    token = watcher.claimed(new, "a")
    watcher.expire(token)
    watcher.execute(
        "update pgflow.step_tasks set queued_at = queued_at - interval '1 day',"
        " started_at = started_at - interval '1 day' where run_id in (%s, %s)",
        old,
        new,
    )
    return token


@both_ends
def test_recoveries_of_the_two_protocols_pass_each_other_by(
    meeting: Meeting, mixed: tuple[str, UUID, UUID, int, int], commit: bool
) -> None:
    _, old, new, *_ = mixed
    token = expired(meeting, mixed)
    recovered, requeued = meeting.meet(
        lambda one: one.recover(new, "a", token)["outcome"],
        lambda two: two.value("select pgflow.requeue_stalled_tasks()"),
        commit=commit,
        waits=False,
    )
    assert (recovered, requeued) == ("recovered", 1)
    assert meeting.watcher.task(old, "a")["requeued_count"] == 1
    assert meeting.watcher.task(new, "a")["requeued_count"] == 0
    assert meeting.watcher.task(new, "a")["status"] == ("queued" if commit else "started")


@both_ends
def test_recovery_of_protocol_1_holds_no_recovery_of_protocol_2_up(
    meeting: Meeting, mixed: tuple[str, UUID, UUID, int, int], commit: bool
) -> None:
    _, old, new, *_ = mixed
    token = expired(meeting, mixed)
    requeued, recovered = meeting.meet(
        lambda one: one.value("select pgflow.requeue_stalled_tasks()"),
        lambda two: two.recover(new, "a", token)["outcome"],
        commit=commit,
        waits=False,
    )
    assert (requeued, recovered) == (1, "recovered")
    assert meeting.watcher.task(old, "a")["requeued_count"] == (1 if commit else 0)
    assert meeting.watcher.claim_row(token)["revoked_reason"] == "lease_lost"
    meeting.watcher.value("select pgflow.requeue_stalled_tasks()")  # leaves nothing stalled for other tests


@both_ends
def test_starts_of_both_protocols_on_one_flow_do_not_wait_for_each_other(
    meeting: Meeting, commit: bool
) -> None:
    flow = meeting.new_flow()
    new, old = meeting.meet(
        lambda one: one.started(flow), lambda two: start_v1(two, flow), commit=commit, waits=False
    )
    old_2, new_2 = meeting.meet(
        lambda one: start_v1(one, flow), lambda two: two.started(flow), commit=commit, waits=False
    )
    expected = {old: 1, new_2: 2} | ({new: 2, old_2: 1} if commit else {})
    assert protocols(meeting, flow) == expected
    assert len(meeting.watcher.messages(flow)) == len(expected)


@both_ends
@pytest.mark.parametrize("first", [1, 2], ids=["protocol 1 first", "protocol 2 first"])
def test_one_run_id_is_of_the_protocol_that_came_first(meeting: Meeting, first: int, commit: bool) -> None:
    flow, run = meeting.new_flow(), uuid4()
    calls: dict[int, Callable[[Session], Any]] = {
        1: lambda session: sqlstate(lambda: start_v1(session, flow, run)),
        2: lambda session: session.start(flow, "{}", run)["outcome"],
    }
    won, lost = {1: (run, "23505"), 2: ("started", "conflict")}[first][0], {1: "conflict", 2: "23505"}[first]
    alone = {1: "started", 2: run}[first]
    assert meeting.meet(calls[first], calls[3 - first], commit=commit) == (won, lost if commit else alone)
    assert protocols(meeting, flow) == {run: first if commit else 3 - first}
    assert len(meeting.watcher.messages(flow)) == 1


# -- several runs, one identity --------------------------------------------------------------------


@both_ends
def test_one_run_id_on_two_flows_is_of_the_flow_that_came_first(meeting: Meeting, commit: bool) -> None:
    first, second, run = meeting.new_flow(), meeting.new_flow(), uuid4()
    outcomes = meeting.meet(
        lambda one: one.start(first, "{}", run), lambda two: two.start(second, "{}", run), commit=commit
    )
    assert outcomes[0] == {"outcome": "started", "run_id": str(run), "replayed": False}
    assert outcomes[1] == (
        {"outcome": "conflict", "run_id": str(run), "reasons": ["run_id"]}
        if commit
        else {"outcome": "started", "run_id": str(run), "replayed": False}
    )
    assert meeting.watcher.run(run)["flow_slug"] == (first if commit else second)
    assert [len(meeting.watcher.messages(flow)) for flow in (first, second)] == ([1, 0] if commit else [0, 1])


@both_ends
def test_one_token_on_two_runs_is_of_the_run_that_came_first(meeting: Meeting, commit: bool) -> None:
    first, second = meeting.watcher.started(meeting.shared), meeting.watcher.started(meeting.shared)
    token = uuid4()
    won, lost = meeting.meet(
        lambda one: one.claim(first, "a", token=token),
        lambda two: two.claim(second, "a", token=token),
        commit=commit,
    )
    assert won["outcome"] == "claimed"
    if commit:
        assert lost == {"outcome": "conflict", "reason": "claim_id"}
    else:
        assert (lost["outcome"], lost["run_id"], lost["claim_number"]) == ("claimed", str(second), 1)
    assert meeting.watcher.claim_row(token)["run_id"] == (first if commit else second)
    statuses = [meeting.watcher.task(run, "a")["status"] for run in (first, second)]
    assert statuses == (["started", "queued"] if commit else ["queued", "started"])
    # The loser's task is free.
    assert meeting.watcher.claim(second if commit else first, "a")["outcome"] == "claimed"


@both_ends
def test_one_claim_made_twice_at_once_is_one_claim(meeting: Meeting, commit: bool) -> None:
    run, token = meeting.watcher.started(meeting.shared), uuid4()
    first, second = meeting.meet(
        lambda one: one.claim(run, "a", token=token),
        lambda two: two.claim(run, "a", token=token),
        commit=commit,
    )
    assert (first["replayed"], second["replayed"]) == (False, commit)
    if commit:
        assert second == {**first, "replayed": True}
    assert meeting.watcher.claim_row(token)["claim_number"] == 1


# -- processors ------------------------------------------------------------------------------------


@pytest.fixture
def processors(database_at: Callable[[str], str]) -> Iterator[Meeting]:
    """Sessions in a database without any other due run."""
    meeting = Meeting(database_at("dirty_runs"))
    yield meeting
    meeting.close()


def due(meeting: Meeting, count: int) -> list[UUID]:
    """Runs with pending work, A completed; the first is due longest."""
    runs = []
    for _ in range(count):
        runs.append(meeting.watcher.started(meeting.shared))
        meeting.watcher.complete(meeting.watcher.claimed(runs[-1], "a"), 1)
    return runs


def test_processors_take_a_run_each_and_pass_over_one_that_is_held(processors: Meeting) -> None:
    runs = due(processors, 3)
    third = processors.open()
    with processors.one.connection.transaction():
        first = processors.one.reconcile()
        with processors.two.connection.transaction():
            second = processors.two.reconcile()
            last = third.reconcile()
            assert [UUID(outcome["run_id"]) for outcome in (first, second, last)] == runs
            assert {outcome["outcome"] for outcome in (first, second, last)} == {"dispatched"}
            # The third is due again, the others are held and passed over.
            again = third.reconcile()
            assert (again["outcome"], again["run_id"]) == ("clean", str(runs[2]))
            assert third.reconcile() == {"outcome": "busy", "busy": 2}
    assert [processors.watcher.work(run)["state"] for run in runs] == ["pending", "pending", "clean"]
    assert len(processors.watcher.messages(processors.shared)) == 3


def test_a_processor_looks_at_sixteen_runs_and_no_more(processors: Meeting) -> None:
    runs = due(processors, 17)
    ids = [str(run) for run in runs]
    with processors.one.connection.transaction():
        processors.one.execute(
            "select from pgflow.runs where run_id = any (%s::uuid[]) for update", ids[1:16]
        )
        found = processors.two.reconcile()
        assert (found["outcome"], found["run_id"]) == ("dispatched", ids[0])
        processors.one.execute("select from pgflow.runs where run_id = %s for update", runs[0])
        assert processors.two.reconcile() == {"outcome": "busy", "busy": 16}
        # The seventeenth is free; who names it gets it.
        assert processors.two.reconcile(runs[16])["outcome"] == "dispatched"
    assert processors.two.reconcile()["run_id"] == ids[0]


def test_a_held_run_that_is_over_its_back_off_lets_the_next_one_through(processors: Meeting) -> None:
    poisoned, sound = due(processors, 2)
    processors.watcher.execute("set session_replication_role = replica")
    processors.watcher.execute(
        "update pgflow.run_work set definition_sha256 = sha256('another') where run_id = %s", poisoned
    )
    processors.watcher.execute("reset session_replication_role")
    failed, dispatched = processors.meet(
        lambda one: one.reconcile(), lambda two: two.reconcile(), waits=False
    )
    assert (failed["outcome"], failed["run_id"], failed["sqlstate"]) == ("failed", str(poisoned), "PF007")
    assert (dispatched["outcome"], dispatched["run_id"]) == ("dispatched", str(sound))
    assert processors.watcher.work(poisoned)["failure_count"] == 1


def test_two_processors_at_once_dispatch_and_clean_each_of_many_runs_once(processors: Meeting) -> None:
    runs = due(processors, 24)

    def drain(session: Session) -> list[tuple[str, str]]:
        done = []
        while (outcome := session.reconcile())["outcome"] != "idle":
            if outcome["outcome"] != "busy":
                done.append((outcome["outcome"], outcome["run_id"]))
        return done

    calls = [processors.background(partial(drain, each)) for each in (processors.one, processors.two)]
    done = [call.result() for call in calls]
    assert sorted(done[0] + done[1]) == sorted(
        (outcome, str(run)) for run in runs for outcome in ("dispatched", "clean")
    )
    assert [processors.watcher.work(run)["state"] for run in runs] == ["clean"] * 24
    assert len(processors.watcher.messages(processors.shared)) == 24


# -- definitions -----------------------------------------------------------------------------------

BY_HAND = {
    "an option of a step": "update pgflow.steps set opt_timeout = 61"
    " where flow_slug = '{flow}' and step_slug = 'b'",
    "a route": "update pgflow.steps set queue_name = '{flow}_elsewhere'"
    " where flow_slug = '{flow}' and step_slug = 'b'",
    "an option of the flow": "update pgflow.flows set opt_timeout = 61 where flow_slug = '{flow}'",
    "an order": "update pgflow.steps set step_index = 7 where flow_slug = '{flow}' and step_slug = 'b'",
    "a further step": "insert into pgflow.steps (flow_slug, step_slug, step_index, queue_name)"
    " values ('{flow}', 'c', 2, '{flow}')",
    "an edge less": "delete from pgflow.deps where flow_slug = '{flow}'",
    "a step less": "with edges as (delete from pgflow.deps where flow_slug = '{flow}')"
    " delete from pgflow.steps where flow_slug = '{flow}' and step_slug = 'b'",
}
AFTERWARDS: dict[str, Any] = {
    "an option of a step": "started",
    "a route": ["queue"],
    "an order": "started",
    "an option of the flow": "started",
    "a further step": ["step_count"],
    "an edge less": ["edge_count"],
    "a step less": ["edge_count", "step_count"],
}


def executed(statement: str, flow: str, session: Session) -> None:
    session.execute(statement.format(flow=flow))


def started(session: Session, flow: str) -> Any:
    """Start a run; "started", or why not."""
    outcome = session.start(flow)
    return sorted(outcome["reasons"]) if outcome["outcome"] == "rejected" else outcome["outcome"]


@both_ends
@pytest.mark.parametrize("change", BY_HAND)
def test_a_change_by_hand_waits_for_a_start_and_is_refused(
    meeting: Meeting, change: str, commit: bool
) -> None:
    flow = meeting.new_flow()
    statement = BY_HAND[change].format(flow=flow)
    outcome = meeting.meet(
        lambda one: started(one, flow),
        lambda two: sqlstate(lambda: two.execute(statement)),
        commit=commit,
    )
    assert outcome == ("started", "55000" if commit else None)
    assert started(meeting.watcher, flow) == ("started" if commit else AFTERWARDS[change])


@both_ends
@pytest.mark.parametrize("change", BY_HAND)
def test_a_start_waits_for_a_change_by_hand_and_sees_it(meeting: Meeting, change: str, commit: bool) -> None:
    flow = meeting.new_flow()
    statement = BY_HAND[change].format(flow=flow)
    outcome = meeting.meet(lambda one: one.execute(statement), lambda two: started(two, flow), commit=commit)
    assert outcome == (None, AFTERWARDS[change] if commit else "started")
    timeout = meeting.watcher.rows(
        "select claim ->> 'timeout' as seconds from pgflow.runs run,"
        " lateral (select pgflow.claim_task_v2(run.run_id, 'a', 0, null, null, %s) -> 'policy') as c (claim)"
        " where run.flow_slug = %s",
        WORKER,
        flow,
    )
    changed = change == "an option of the flow" and commit
    assert [row["seconds"] for row in timeout] == (
        [] if isinstance(outcome[1], list) else ["61" if changed else "60"]
    )


@both_ends
def test_a_recompilation_waits_for_a_start_and_is_refused(meeting: Meeting, commit: bool) -> None:
    flow = meeting.new_flow()
    outcome = meeting.meet(
        lambda one: started(one, flow), lambda two: sqlstate(lambda: recompiled(two, flow)), commit=commit
    )
    assert outcome == ("started", "55000" if commit else "recompiled")
    assert steps(meeting, flow) == (["a", "b"] if commit else ["only"])


@both_ends
def test_a_start_waits_for_a_recompilation_and_sees_it(meeting: Meeting, commit: bool) -> None:
    flow = meeting.new_flow()
    outcome = meeting.meet(lambda one: recompiled(one, flow), lambda two: started(two, flow), commit=commit)
    assert outcome == ("recompiled", ["edge_count", "max_attempts", "step_count"] if commit else "started")
    assert steps(meeting, flow) == (["only"] if commit else ["a", "b"])


@both_ends
@pytest.mark.parametrize("change", BY_HAND)
def test_a_start_that_has_the_flow_already_waits_for_a_change_of_its_rows(
    meeting: Meeting, change: str, commit: bool
) -> None:
    """Who changes rows by hand holds them; if he waited for the flow's lock, too, that were a circle."""
    flow = meeting.new_flow()
    meeting.one.execute("begin")
    meeting.one.execute("select pgflow._lock_flow(%s)", flow)
    meeting.two.execute("begin")
    meeting.two.execute(BY_HAND[change].format(flow=flow))
    start = meeting.background(lambda: started(meeting.one, flow))
    meeting.wait_until_blocked(meeting.two, meeting.one, start)
    meeting.two.execute("commit" if commit else "rollback")
    assert start.result() == (AFTERWARDS[change] if commit else "started")
    meeting.one.execute("commit")


DEFINITION_CALLS = {
    "add_step": "select pgflow.add_step('{flow}', 'b', '{{a}}')",
    "create_flow": "select pgflow.create_flow('{flow}')",
}


@both_ends
@pytest.mark.parametrize("call", DEFINITION_CALLS)
def test_a_change_of_a_flow_by_hand_and_a_definition_call_wait_for_each_other_in_either_order(
    meeting: Meeting, call: str, commit: bool
) -> None:
    flow = meeting.new_flow()
    by_hand, definition = BY_HAND["an option of the flow"], DEFINITION_CALLS[call]
    for first, second in ((by_hand, definition), (definition, by_hand)):
        meeting.meet(partial(executed, first, flow), partial(executed, second, flow), commit=commit)
    assert meeting.watcher.value("select opt_timeout from pgflow.flows where flow_slug = %s", flow) == 61
    assert steps(meeting, flow) == ["a", "b"]


FROZEN = {
    **BY_HAND,
    "add_step": "select pgflow.add_step('{flow}', 'c')",
    "deletion": "select pgflow.delete_flow_and_data('{flow}')",
}
old_snapshot = pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])


@old_snapshot
@pytest.mark.parametrize("change", FROZEN)
def test_who_reads_an_older_snapshot_cannot_change_what_a_start_has_frozen(
    meeting: Meeting, change: str, isolation: str
) -> None:
    flow = meeting.new_flow()
    meeting.two.execute(f"begin isolation level {isolation}")
    assert meeting.two.value("select count(*) from pgflow.runs where flow_slug = %s", flow) == 0
    run = meeting.one.started(flow)
    assert sqlstate(lambda: meeting.two.execute(FROZEN[change].format(flow=flow))) == "40001"
    meeting.two.execute("rollback")
    assert steps(meeting, flow) == ["a", "b"]
    assert meeting.one.claim(run, "a")["outcome"] == "claimed"


@old_snapshot
def test_a_start_that_reads_an_older_snapshot_is_rejected(meeting: Meeting, isolation: str) -> None:
    flow = meeting.new_flow()
    meeting.two.execute(f"begin isolation level {isolation}")
    assert meeting.two.value("select count(*) from pgflow.runs where flow_slug = %s", flow) == 0
    meeting.one.execute(BY_HAND["an option of a step"].format(flow=flow))
    assert started(meeting.two, flow) == ["transaction_isolation"]
    meeting.two.execute("commit")
    assert meeting.watcher.messages(flow) == []


def recompiled(session: Session, flow: str) -> Any:
    """Compile another shape as on a local stack; the status."""
    session.execute("set app.settings.jwt_secret = 'super-secret-jwt-token-with-at-least-32-characters-long'")
    return session.value("select pgflow.ensure_flow_compiled(%s, %s, %s)", flow, shape("only"), CAPABLE)[
        "status"
    ]


def steps(meeting: Meeting, flow: str) -> list[str]:
    rows = meeting.watcher.rows("select step_slug from pgflow.steps where flow_slug = %s order by 1", flow)
    return [row["step_slug"] for row in rows]


# -- pruning ---------------------------------------------------------------------------------------

EVERYTHING = "select pgflow.prune_data_older_than(interval '-1 hour')"
SETTLE: dict[str, Callable[[Session, UUID], Any]] = {
    "succeed": lambda session, token: session.complete(token, 1),
    "fail": lambda session, token: session.fail(token),
}


@pytest.fixture
def pruned(meeting: Meeting) -> tuple[UUID, UUID, UUID]:
    """The pruning helper; runs: over of protocol 1, over of protocol 2, held of protocol 2 (its token)."""
    watcher = meeting.watcher
    watcher.execute((resources.helpers() / "prune_data_older_than.sql").read_text(encoding="utf-8"))
    flow = meeting.new_flow()
    old = start_v1(watcher, flow)
    watcher.execute("update pgflow.runs set status = 'failed', failed_at = now() where run_id = %s", old)
    over = watcher.started(flow)
    watcher.fail(watcher.claimed(over, "a"))
    return old, over, watcher.claimed(watcher.started(flow), "a")


@both_ends
@pytest.mark.parametrize("settlement", SETTLE)
def test_pruning_does_not_wait_for_a_settlement_and_leaves_it_alone(
    meeting: Meeting, pruned: tuple[UUID, UUID, UUID], settlement: str, commit: bool
) -> None:
    old, over, token = pruned
    settled, _ = meeting.meet(
        lambda one: SETTLE[settlement](one, token)["outcome"],
        lambda two: two.execute(EVERYTHING),
        commit=commit,
        waits=False,
    )
    assert settled == "accepted"
    look_at_what_is_kept(meeting, old, over, token, settled=commit)
    assert SETTLE[settlement](meeting.watcher, token)["replayed"] is commit


@both_ends
@pytest.mark.parametrize("settlement", SETTLE)
def test_a_settlement_does_not_wait_for_pruning(
    meeting: Meeting, pruned: tuple[UUID, UUID, UUID], settlement: str, commit: bool
) -> None:
    old, over, token = pruned
    _, settled = meeting.meet(
        lambda one: one.execute(EVERYTHING),
        lambda two: SETTLE[settlement](two, token)["outcome"],
        commit=commit,
        waits=False,
    )
    assert settled == "accepted"
    look_at_what_is_kept(meeting, old, over, token, settled=True, pruned=commit)


def look_at_what_is_kept(
    meeting: Meeting, old: UUID, over: UUID, token: UUID, *, settled: bool, pruned: bool = True
) -> None:
    watcher = meeting.watcher
    assert watcher.value("select count(*) from pgflow.runs where run_id = %s", old) == (0 if pruned else 1)
    for run in (over, watcher.claim_row(token)["run_id"]):
        task = watcher.task(run, "a")
        places = [
            task["message_id"] in ids(task["queue_name"]) for ids in (watcher.messages, watcher.archived)
        ]
        ended = settled or run == over
        assert places == [not ended, ended]
        assert watcher.work(run)["requested_generation"] == (1 if ended else 0)
