"""What the queue-aware helper deletes, and what it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
import pytest

from pgflow_migrate.replay import signature
from pgflow_migrate.replay.differences import differences

if TYPE_CHECKING:
    from tests.prune_helper.conftest import World


@pytest.fixture
def populated(world: World) -> World:
    """Two flows, one of them camelCase with a step in a queue of its own; runs old and new, ended and not.

    Messages of ``orders``: 1 of run 1, 2 of run 2, 3 of run 3, 4 of run 4.
    Messages of ``cafeOrders``: ``brew`` 1 of run 11, 2 of run 12, 3 of run 13 in ``cafeorders``;
    ``pay`` the same numbers in ``cafe_pay``.
    """
    world.flow("orders", "pack", max_attempts=1)
    world.flow("cafeOrders", "brew", "pay", max_attempts=1)
    world.route("cafeOrders", "pay", "cafe_pay")
    for number in (1, 2, 3, 4):
        world.start("orders", number)
    for number in (11, 12, 13):
        world.start("cafeOrders", number)
    world.complete(world.id(1), "pack")
    world.fail(world.id(2), "pack")
    world.complete(world.id(3), "pack")
    world.complete(world.id(11), "brew", "pay")
    world.fail(world.id(12), "brew")
    world.age(world.id(1), "40 days")
    world.age(world.id(2), "40 days")
    world.age(world.id(4), "400 days")
    world.age(world.id(11), "40 days")
    world.age(world.id(12), "20 days")
    return world


def test_it_deletes_old_ended_runs_with_all_that_they_have(populated: World) -> None:
    populated.requeue(populated.id(11))  # in both queues, under ids that others have elsewhere
    assert populated.messages("cafeorders") == [1, 3]
    assert populated.messages("cafe_pay") == [1, 3]
    populated.prune()
    assert populated.runs() == [
        (3, "completed"),
        (4, "started"),
        (12, "failed"),
        (13, "started"),
    ]
    assert populated.states() == [
        (3, "pack", "completed"),
        (4, "pack", "started"),
        (12, "brew", "failed"),
        (12, "pay", "started"),
        (13, "brew", "started"),
        (13, "pay", "started"),
    ]
    assert populated.tasks() == [
        (3, "pack", "orders", 3, "completed"),
        (4, "pack", "orders", 4, "queued"),
        (12, "brew", "cafeorders", 2, "failed"),
        (12, "pay", "cafe_pay", 2, "cancelled"),
        (13, "brew", "cafeorders", 3, "queued"),
        (13, "pay", "cafe_pay", 3, "queued"),
    ]
    assert populated.messages("orders") == [4]
    assert populated.archive("orders") == [3]
    assert populated.messages("cafeorders") == [3]
    assert populated.archive("cafeorders") == [2]
    assert populated.messages("cafe_pay") == [3]
    assert populated.archive("cafe_pay") == [2]
    assert populated.rows('select flow_slug from pgflow.flows order by flow_slug collate "C"') == [
        ("cafeOrders",),
        ("orders",),
    ]
    assert populated.rows('select queue_name::text from pgmq.meta order by queue_name collate "C"') == [
        ("cafe_pay",),
        ("cafeorders",),
        ("orders",),
    ]


def test_flows_run_on_after_it(populated: World) -> None:
    populated.prune()
    populated.complete(populated.id(13), "brew", "pay")
    populated.complete(populated.start("cafeOrders", 14), "brew", "pay")
    assert populated.runs()[-2:] == [(13, "completed"), (14, "completed")]


def test_only_what_is_strictly_older_is_old(populated: World) -> None:
    with populated.connection.transaction():
        populated.do(
            "update pgflow.runs set completed_at = now() - interval '30 days' where run_id = %s",
            populated.id(1),
        )
        populated.do("update pgmq.a_orders set archived_at = now() - interval '30 days'")
        populated.prune("30 days")
        assert populated.runs()[0] == (1, "completed")
        assert populated.archive("orders") == [1, 2, 3]
        populated.prune("29 days 23:59:59.999999")
        assert populated.runs()[0] == (3, "completed")
        assert populated.archive("orders") == []


def test_a_message_of_the_same_id_in_another_queue_stays(populated: World) -> None:
    populated.requeue(populated.id(1))
    assert populated.rows("select pgmq.create('strangers'), pgmq.send('strangers', '{}')") == [("", 1)]
    populated.do("select pgmq.archive('strangers', (select pgmq.send('strangers', '{}')))")
    populated.do("update pgmq.a_strangers set archived_at = now() - interval '1 year'")
    populated.start("cafeOrders", 15)
    populated.prune()
    assert populated.messages("orders") == [4]
    assert populated.messages("cafeorders") == [3, 4]
    assert populated.messages("strangers") == [1]
    assert populated.archive("strangers") == [2]


def test_archived_messages_go_by_their_own_age_whatever_their_run(populated: World) -> None:
    populated.do("update pgmq.a_cafe_pay set archived_at = now() - interval '31 days'")
    populated.do("update pgmq.a_orders set archived_at = now() where msg_id = 1")
    populated.prune()
    assert populated.archive("cafe_pay") == []
    assert populated.archive("orders") == [1, 3]


def test_archives_are_those_of_routes_and_of_tasks_sent_before_a_route_was_changed(populated: World) -> None:
    populated.do("update pgflow.steps set queue_name = 'cafeorders' where step_slug = 'pay'")
    populated.prune()  # deletes run 11, keeps run 12: tasks of it remain in cafe_pay
    assert populated.archive("cafe_pay") == [2]
    populated.age(populated.id(12), "20 days")
    populated.do("delete from pgflow.step_tasks where run_id = %s", populated.id(13))
    populated.prune()  # deletes the last task in cafe_pay
    assert populated.archive("cafe_pay") == []


def test_the_default_queue_of_a_flow_without_steps_is_pruned_only_if_made_with_it(world: World) -> None:
    for slug in ("compiled", "merely_defined"):
        with world.connection.transaction():
            world.do("select pgflow.create_flow(%s)", slug)
            if slug == "compiled":
                world.do("select pgmq.create(%s)", slug)
    world.do("select pgmq.create('merely_defined')")
    for slug in ("compiled", "merely_defined"):
        world.do("select pgmq.archive(%s, (select pgmq.send(%s, '{}')))", slug, slug)
        world.do(f"update pgmq.a_{slug} set archived_at = now() - interval '1 year'")
    world.prune()
    assert world.archive("compiled") == []
    assert world.archive("merely_defined") == [1]


def test_tasks_without_a_message_and_messages_that_are_gone_are_no_error(populated: World) -> None:
    populated.do("update pgflow.step_tasks set message_id = null where run_id = %s", populated.id(1))
    populated.do("select pgmq.send('orders', '{}')")
    populated.prune()
    assert populated.runs()[0] == (3, "completed")
    assert populated.messages("orders") == [4, 5]


def test_unfinished_tasks_of_an_old_failed_run_go_with_it(populated: World) -> None:
    populated.requeue(populated.id(2))
    populated.do(
        "update pgflow.step_tasks set status = 'queued', failed_at = null where run_id = %s", populated.id(2)
    )
    populated.prune()
    assert 2 not in [number for number, *_ in populated.tasks()]
    assert populated.messages("orders") == [4]


def test_a_missing_queue_lets_nothing_be_deleted(populated: World) -> None:
    populated.worker(1, silent_for="31 days")
    populated.do("drop table pgmq.q_cafe_pay")
    with psycopg.connect(populated.connection.info.dsn, autocommit=True) as observer:
        before = signature.take(observer)
        with pytest.raises(
            psycopg.errors.UndefinedTable, match=r'relation "pgmq\.q_cafe_pay" does not exist'
        ):
            populated.prune()
        assert differences(before, signature.take(observer)) == ()


def test_a_missing_queue_of_runs_that_stay_is_no_error(populated: World) -> None:
    populated.do("drop table pgmq.q_cafe_pay")
    populated.do("update pgflow.runs set completed_at = now() where run_id = %s", populated.id(11))
    populated.prune()
    assert populated.runs()[:2] == [(3, "completed"), (4, "started")]


def test_a_missing_archive_is_passed_over(populated: World) -> None:
    populated.do("drop table pgmq.a_cafe_pay")
    populated.prune()
    assert [number for number, _ in populated.runs()] == [3, 4, 12, 13]
    assert populated.archive("orders") == [3]


def test_null_deletes_nothing(populated: World) -> None:
    with psycopg.connect(populated.connection.info.dsn, autocommit=True) as observer:
        before = signature.take(observer)
        populated.prune(None)
        assert differences(before, signature.take(observer)) == ()


@pytest.mark.parametrize("interval", ["0", "-1 day"])
def test_zero_and_negative_intervals_delete_all_that_has_ended(populated: World, interval: str) -> None:
    populated.worker(1)
    populated.prune(interval)
    assert populated.runs() == [(4, "started"), (13, "started")]
    assert populated.rows("select from pgflow.workers") == []
    for queue, active in (("orders", [4]), ("cafeorders", [3]), ("cafe_pay", [3])):
        assert (populated.messages(queue), populated.archive(queue)) == (active, [])


def test_workers_go_by_their_heartbeat_and_leave_their_tasks(populated: World) -> None:
    dead, deprecated, alive = (
        populated.worker(1, silent_for="31 days"),
        populated.worker(2, silent_for="31 days"),
        populated.worker(3, silent_for="29 days"),
    )
    populated.do("update pgflow.workers set deprecated_at = now() where worker_id = %s", deprecated)
    populated.claim(populated.id(4), dead)
    populated.claim(populated.id(13), alive)
    populated.prune()
    assert populated.rows("select worker_id::text from pgflow.workers") == [(alive,)]
    assert populated.rows(
        "select right(run_id::text, 3)::int, status, last_worker_id::text from pgflow.step_tasks"
        " where status = 'started' order by 1, 2"
    ) == [(4, "started", None), (13, "started", alive), (13, "started", alive)]


def test_an_empty_database_is_no_error(world: World) -> None:
    world.prune()
    assert (world.runs(), world.tasks()) == ([], [])


def test_repeated_it_finds_nothing_more(populated: World) -> None:
    populated.prune()
    with psycopg.connect(populated.connection.info.dsn, autocommit=True) as observer:
        before = signature.take(observer)
        populated.prune()
        assert differences(before, signature.take(observer)) == ()


def test_it_works_whatever_the_search_path_is(populated: World) -> None:
    populated.do(
        "create schema trap; create function trap.now() returns timestamptz language sql as"
        " $$ select '-infinity'::timestamptz $$; create table trap.runs (run_id uuid)"
    )
    populated.do("set search_path = trap, pg_catalog, pgflow")
    populated.do("select pgflow.prune_data_older_than(interval '30 days')")
    populated.do("reset search_path")
    assert [number for number, _ in populated.runs()] == [3, 4, 12, 13]
