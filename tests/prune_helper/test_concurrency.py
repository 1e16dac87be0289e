"""The helper beside callbacks, claims, recovery, deletion and itself: nobody deadlocks, nothing is lost.

Every test runs one call, leaves its transaction open, and lets the other come; then the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

if TYPE_CHECKING:
    from tests.prune_helper.conftest import World

PRUNE = "select pgflow.prune_data_older_than(interval '30 days')"
COMPLETE = "select status from pgflow.complete_task(%s, %s, 0, '2')"
FAIL = "select status from pgflow.fail_task(%s, %s, 0, 'again')"
CLAIM = "select pgflow.claim_tasks('orders', 'orders', %s, %s)"
REQUEUE = "select pgflow.requeue_stalled_tasks()"
SECONDS = 20


def outcome(verdict: dict[str, Any]) -> tuple[str, list[str], list[str]]:
    """Outcome of a claim, messages of claimed tasks, messages archived."""
    return verdict["outcome"], [task["msg_id"] for task in verdict["tasks"]], verdict["archived"]


@pytest.fixture
def ended(world: World) -> World:
    """Old runs, 1 completed and 2 failed, whose messages are, by some mishap, still in the queue."""
    world.flow("orders", "pack", max_attempts=1)
    world.complete(world.start("orders", 1), "pack")
    world.fail(world.start("orders", 2), "pack")
    for number in (1, 2):
        world.age(world.id(number), "40 days")
        world.requeue(world.id(number))
    assert world.messages("orders") == [1, 2]
    return world


@pytest.fixture
def retried(world: World) -> World:
    """Run 1, whose only task is queued again after worker 1 had it; that worker has been silent for long."""
    world.flow("orders", "pack", max_attempts=3)
    world.worker(1, silent_for="40 days")
    world.worker(2)
    world.claim(world.start("orders", 1), world.id(1))
    world.do("select pgflow.fail_task(%s, 'pack', 0, 'once')", world.id(1))
    assert task(world) == ("queued", 1, world.id(1))
    return world


@pytest.fixture
def stalled(world: World) -> World:
    """Run 1, whose task worker 1 has had for an hour; that worker has been silent for long."""
    world.flow("orders", "pack")
    world.worker(1, silent_for="40 days")
    world.claim(world.start("orders", 1), world.id(1))
    world.do(
        "update pgflow.step_tasks set queued_at = queued_at - interval '1 hour',"
        " started_at = started_at - interval '1 hour'"
    )
    assert task(world) == ("started", 1, world.id(1))
    return world


def task(world: World) -> tuple[str, int, str | None]:
    """Status, attempts and last worker of the only task."""
    ((status, attempts, worker),) = world.rows(
        "select status, attempts_count, last_worker_id::text from pgflow.step_tasks"
    )
    return status, attempts, worker


def workers(world: World) -> list[str]:
    return [worker for (worker,) in world.rows("select worker_id::text from pgflow.workers order by 1")]


# Callbacks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("callback", "number"), [(COMPLETE, 1), (FAIL, 1), (FAIL, 2)])
def test_a_late_callback_waits_for_the_pruning_and_finds_nothing(
    ended: World, other: World, callback: str, number: int
) -> None:
    with ended.connection.transaction():
        ended.prune()
        late = ended.waits(other, callback, ended.id(number), "pack")
    assert late.result(SECONDS) == []
    assert (ended.runs(), ended.tasks(), ended.messages("orders"), ended.archive("orders")) == (
        [],
        [],
        [],
        [],
    )


@pytest.mark.parametrize(
    ("callback", "number", "status"),
    [(COMPLETE, 1, "completed"), (FAIL, 1, "completed"), (FAIL, 2, "failed")],
)
def test_the_pruning_waits_for_a_late_callback(
    ended: World, other: World, callback: str, number: int, status: str
) -> None:
    with ended.connection.transaction():
        assert ended.rows(callback, ended.id(number), "pack") == [(status,)]
        pruning = ended.waits(other, PRUNE)
    pruning.result(SECONDS)
    assert (ended.runs(), ended.tasks(), ended.messages("orders")) == ([], [], [])
    assert ended.archive("orders") == [number]  # archived just now, by the callback


def test_a_run_that_ends_while_the_pruning_waits_is_left_to_the_next(ended: World, other: World) -> None:
    run = ended.start("orders", 3)
    ended.claim(run)
    with ended.connection.transaction():
        ended.do("select from pgflow.runs where run_id = %s for update", ended.id(1))
        pruning = ended.waits(other, "select pgflow.prune_data_older_than(interval '-1 day')")
        ended.do("select pgflow.complete_task(%s, 'pack', 0, '1')", run)
    pruning.result(SECONDS)
    assert ended.runs() == [(3, "completed")]
    assert ended.tasks() == [(3, "pack", "orders", 3, "completed")]
    ended.prune("-1 day")
    assert ended.runs() == []


# Claims --------------------------------------------------------------------------------------------------


def test_a_claim_passes_over_a_message_that_is_being_pruned(ended: World, other: World) -> None:
    ended.start("orders", 3)
    with ended.connection.transaction():
        ended.prune()
        ((verdict,),) = other.rows(CLAIM, [1, 2, 3], None)
    assert outcome(verdict) == ("claimed", ["3"], [])
    assert verdict["busy"] == ["1", "2"]
    assert ended.tasks() == [(3, "pack", "orders", 3, "started")]
    assert (ended.messages("orders"), ended.archive("orders")) == ([3], [])


def test_a_claim_after_the_pruning_leaves_out_messages_that_are_gone(ended: World, other: World) -> None:
    ended.start("orders", 3)
    ended.prune()
    ((verdict,),) = other.rows(CLAIM, [1, 2, 3], None)
    assert outcome(verdict) == ("claimed", ["3"], [])


def test_the_pruning_waits_for_a_claim_that_archives(ended: World, other: World) -> None:
    ended.start("orders", 3)
    with ended.connection.transaction():
        ((verdict,),) = ended.rows(CLAIM, [1, 2, 3], None)
        assert outcome(verdict) == ("claimed", ["3"], ["1", "2"])
        pruning = ended.waits(other, PRUNE)
    pruning.result(SECONDS)
    assert ended.tasks() == [(3, "pack", "orders", 3, "started")]
    assert (ended.messages("orders"), ended.archive("orders")) == ([3], [1, 2])


def test_a_worker_that_is_claiming_is_left_to_the_next_pruning(retried: World, other: World) -> None:
    with retried.connection.transaction():
        retried.do(CLAIM, [1], retried.id(1))
        other.prune()  # without waiting
        assert workers(other) == [retried.id(1), retried.id(2)]
    assert task(retried) == ("started", 2, retried.id(1))
    retried.prune()
    assert workers(retried) == [retried.id(2)]
    assert task(retried) == ("started", 2, None)
    assert retried.messages("orders") == [1]


def test_a_task_of_a_dead_worker_that_another_claims_keeps_that_one(retried: World, other: World) -> None:
    with retried.connection.transaction():
        retried.do(CLAIM, [1], retried.id(2))
        other.prune()
    assert task(retried) == ("started", 2, retried.id(2))
    retried.prune()
    assert workers(retried) == [retried.id(2)]
    assert task(retried) == ("started", 2, retried.id(2))


def test_a_pruned_worker_cannot_claim_any_more_and_another_can(retried: World, other: World) -> None:
    with retried.connection.transaction():
        retried.prune()
        ((verdict,),) = other.rows(CLAIM, [1], retried.id(1))
        assert (outcome(verdict), verdict["busy"]) == (("claimed", [], []), ["1"])
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="step_tasks_last_worker_id_fkey"):
        other.do(CLAIM, [1], retried.id(1))
    assert task(retried) == ("queued", 1, None)
    ((verdict,),) = other.rows(CLAIM, [1], retried.id(2))
    assert outcome(verdict) == ("claimed", ["1"], [])
    assert task(retried) == ("started", 2, retried.id(2))


def test_a_worker_that_is_being_pruned_fails_to_claim_and_its_task_stays_queued(
    world: World, other: World
) -> None:
    world.flow("orders", "pack")
    world.worker(1, silent_for="40 days")
    world.start("orders", 1)
    with world.connection.transaction():
        world.prune()
        claim = world.waits(other, CLAIM, [1], world.id(1))  # holds the task, asks for the worker
    with pytest.raises(psycopg.errors.ForeignKeyViolation, match="step_tasks_last_worker_id_fkey"):
        claim.result(SECONDS)
    assert task(world) == ("queued", 0, None)
    assert world.messages("orders") == [1]


def test_a_heartbeat_under_way_saves_the_worker(retried: World, other: World) -> None:
    with retried.connection.transaction():
        retried.do(
            "update pgflow.workers set last_heartbeat_at = clock_timestamp() where worker_id = %s",
            retried.id(1),
        )
        other.prune()
    assert workers(retried) == [retried.id(1), retried.id(2)]
    other.prune()
    assert workers(retried) == [retried.id(1), retried.id(2)]


# Recovery ------------------------------------------------------------------------------------------------


def test_the_pruning_passes_over_a_worker_whose_task_is_being_recovered(stalled: World, other: World) -> None:
    with stalled.connection.transaction():
        assert stalled.rows(REQUEUE) == [(1,)]
        other.prune()
        assert workers(other) == [stalled.id(1)]
    assert task(stalled) == ("queued", 1, None)
    stalled.prune()
    assert workers(stalled) == []
    assert task(stalled) == ("queued", 1, None)
    assert stalled.messages("orders") == [1]


def test_the_recovery_passes_over_a_task_that_the_pruning_holds(stalled: World, other: World) -> None:
    with stalled.connection.transaction():
        stalled.prune()
        assert other.rows(REQUEUE) == [(0,)]
    assert task(stalled) == ("started", 1, None)
    assert other.rows(REQUEUE) == [(1,)]
    assert task(stalled) == ("queued", 1, None)
    assert stalled.messages("orders") == [1]


def test_recovery_does_not_wait_for_old_runs(ended: World, other: World) -> None:
    with ended.connection.transaction():
        ended.prune()
        assert other.rows(REQUEUE) == [(0,)]
    assert ended.runs() == []


# Deletion, and another pruning ---------------------------------------------------------------------------


def test_two_prunings_come_one_after_the_other(ended: World, other: World) -> None:
    with ended.connection.transaction():
        ended.prune()
        second = ended.waits(other, PRUNE)
    second.result(SECONDS)
    assert (ended.runs(), ended.messages("orders")) == ([], [])


@pytest.fixture
def two_flows(ended: World) -> World:
    """A flow more, with a finished run 7 that is not old and a message archived long ago."""
    ended.flow("tea", "brew")
    ended.complete(ended.start("tea", 7), "brew")
    ended.do("update pgmq.a_tea set archived_at = now() - interval '1 year'")
    return ended


@pytest.mark.parametrize("slug", ["orders", "tea"])
def test_a_flows_deletion_waits_for_the_pruning(two_flows: World, other: World, slug: str) -> None:
    with two_flows.connection.transaction():
        two_flows.prune()
        deletion = two_flows.waits(other, "select pgflow.delete_flow_and_data(%s)", slug)
    deletion.result(SECONDS)
    assert two_flows.runs() == ([(7, "completed")] if slug == "orders" else [])
    assert two_flows.rows("select flow_slug from pgflow.flows") == [
        ("tea" if slug == "orders" else "orders",)
    ]


@pytest.mark.parametrize("slug", ["orders", "tea"])
def test_the_pruning_waits_for_a_flows_deletion_and_does_the_rest(
    two_flows: World, other: World, slug: str
) -> None:
    with two_flows.connection.transaction():
        two_flows.do("select pgflow.delete_flow_and_data(%s)", slug)
        pruning = two_flows.waits(other, PRUNE)
    pruning.result(SECONDS)
    if slug == "orders":
        assert two_flows.runs() == [(7, "completed")]
        assert two_flows.archive("tea") == []
    else:
        assert (two_flows.runs(), two_flows.messages("orders")) == ([], [])


WORK_OFF = """
    do $$
    declare
      batch bigint[];
      verdict jsonb;
      task jsonb;
    begin
      while exists (select from pgflow.runs where status = 'started') loop
        batch := array(select msg_id from pgmq.read('orders', 30, 7));
        commit;
        verdict := pgflow.claim_tasks('orders', 'orders', batch, null);
        commit;
        if verdict ->> 'outcome' <> 'claimed' then
          raise exception '%', verdict;
        end if;
        for task in select jsonb_array_elements(verdict -> 'tasks') loop
          if random() < 0.2 then
            perform pgflow.fail_task((task ->> 'run_id')::uuid, task ->> 'step_slug', 0, 'no');
          else
            perform pgflow.complete_task((task ->> 'run_id')::uuid, task ->> 'step_slug', 0, '1');
          end if;
          commit;
        end loop;
      end loop;
    end $$
"""


def test_many_at_once_never_deadlock(world: World, worlds: Callable[[str], World]) -> None:
    """Callbacks, claims, recovery and prunings of everything that has ended, as fast as they can."""
    world.flow("orders", "pack", "ship", max_attempts=1)
    for number in range(1, 51):
        world.start("orders", number)
    sessions = [worlds(world.connection.info.dsn) for _ in range(4)]
    for session in sessions:
        session.do("set deadlock_timeout = '10ms'")
    claims = [session.meanwhile(WORK_OFF) for session in sessions[:3]]
    prunings = 0
    while not all(claim.done() for claim in claims):
        sessions[3].prune("-1 day")
        sessions[3].do(REQUEUE)
        prunings += 1
    for claim in claims:
        claim.result()
    assert prunings > 1
    sessions[3].prune("-1 day")
    assert (world.runs(), world.states(), world.tasks(), world.messages("orders")) == ([], [], [], [])
