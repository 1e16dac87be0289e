"""A 0.16.0 database with an installed helper: upgraded, its helper replaced, and pruned by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgflow_migrate import prune_helper
from pgflow_migrate.replay.templates import upgrade_to

if TYPE_CHECKING:
    from tests.prune_helper.conftest import StandIn, World


def claim(world: World, slug: str, number: int) -> None:
    """Claim a run's tasks as 0.16.0 does, whichever they are."""
    world.do(
        "select pgflow.start_tasks(%s, array(select message_id from pgflow.step_tasks"
        " where run_id = %s and status = 'queued'), null)",
        slug,
        world.id(number),
    )


@pytest.fixture
def old(
    database_at: Callable[[str], str], worlds: Callable[[str], World], stand_in: Callable[[str], StandIn]
) -> World:
    """0.16.0 with the documented helper.

    Runs of ``orders``: 1 old, 2 new; of ``teaTime``: 3 old and failed, 4 old but running.
    """
    world = worlds(database_at("core_0_16_0"))
    world.do(stand_in("stock").create)
    world.flow("orders", "pack")
    world.flow("teaTime", "boil", "pour", max_attempts=1)
    for slug, number in (("orders", 1), ("orders", 2), ("teaTime", 3), ("teaTime", 4)):
        world.start(slug, number)
        claim(world, slug, number)
    for number in (1, 2):
        world.do("select pgflow.complete_task(%s, 'pack', 0, '1')", world.id(number))
    world.do("select pgflow.fail_task(%s, 'boil', 0, 'no')", world.id(3))
    world.do("select pgflow.complete_task(%s, 'boil', 0, '1')", world.id(4))
    world.do(
        "update pgflow.runs set started_at = started_at - interval '40 days',"
        " completed_at = completed_at - interval '40 days', failed_at = failed_at - interval '40 days'"
        " where run_id <> %s",
        world.id(2),
    )
    world.do("update pgmq.a_orders set archived_at = archived_at - interval '40 days' where msg_id = 1")
    return world


def test_the_stock_helper_is_replaced_after_the_upgrade_and_prunes_every_queue(
    old: World, stand_in: Callable[[str], StandIn]
) -> None:
    stock = stand_in("stock")
    dsn = old.connection.info.dsn
    before = prune_helper.find(dsn, stock_md5s=[stock.md5])
    assert (before.queue_identity, before.helpers[0].kind, before.to_do) == (False, "stock", False)

    upgrade_to(dsn, "queue_identity")
    after = prune_helper.find(dsn, stock_md5s=[stock.md5])
    assert (after.queue_identity, after.helpers[0].kind, after.to_do) == (True, "stock", True)

    # A step gets a queue of its own, which the stock helper knows nothing of.
    old.route("teaTime", "pour", "tea_pour")
    old.fail(old.start("teaTime", 5), "boil")
    old.age(old.id(5), "35 days")
    old.requeue(old.id(5))
    assert old.tasks() == [
        (1, "pack", "orders", 1, "completed"),
        (2, "pack", "orders", 2, "completed"),
        (3, "boil", "teatime", 1, "failed"),
        (3, "pour", "teatime", 2, "cancelled"),
        (4, "boil", "teatime", 3, "completed"),
        (4, "pour", "teatime", 4, "started"),
        (5, "boil", "teatime", 5, "failed"),
        (5, "pour", "tea_pour", 1, "cancelled"),
    ]
    assert (old.messages("teatime"), old.archive("teatime")) == ([4, 5], [1, 2, 3])
    assert (old.messages("tea_pour"), old.archive("tea_pour")) == ([1], [])

    with old.connection.transaction(force_rollback=True):
        old.prune()
        assert old.messages("tea_pour") == [1]  # the stock helper leaves it behind

    old.do(prune_helper.script([stock.md5]))
    replaced = prune_helper.find(dsn)
    assert (replaced.helpers[0].kind, replaced.to_do) == ("queue-aware", False)
    old.prune()

    assert old.runs() == [(2, "completed"), (4, "started")]
    assert old.states() == [(2, "pack", "completed"), (4, "boil", "completed"), (4, "pour", "started")]
    assert old.tasks() == [
        (2, "pack", "orders", 2, "completed"),
        (4, "boil", "teatime", 3, "completed"),
        (4, "pour", "teatime", 4, "started"),
    ]
    assert (old.messages("orders"), old.archive("orders")) == ([], [2])
    assert (old.messages("teatime"), old.archive("teatime")) == ([4], [1, 2, 3])
    assert (old.messages("tea_pour"), old.archive("tea_pour")) == ([], [])


def test_a_customised_helper_outlives_the_upgrade_and_is_not_replaced(
    old: World, stand_in: Callable[[str], StandIn]
) -> None:
    dsn = old.connection.info.dsn
    old.do("drop function pgflow.prune_data_older_than(interval)")
    old.do(stand_in("customised").create)
    upgrade_to(dsn, "queue_identity")
    found = prune_helper.find(dsn)
    assert (found.helpers[0].kind, found.to_do) == ("customised", True)
    old.prune()  # it works on: every flow uses its default queue
    assert old.runs() == [(2, "completed"), (4, "started")]


def test_who_pruned_before_protocol_2_may_prune_beside_it_by_what_the_upgrade_grants(
    database_at: Callable[[str], str], worlds: Callable[[str], World]
) -> None:
    dsn = database_at("queue_identity")
    world = worlds(dsn)
    world.do(prune_helper.script())
    world.flow("orders", "pack")
    for number in (1, 2):
        world.complete(world.start("orders", number), "pack")
        world.age(world.id(number), "40 days")
    world.do("create role prune_caller login")
    try:
        world.do("grant usage on schema pgflow, pgmq to prune_caller")
        world.do("grant all on all tables in schema pgflow, pgmq to prune_caller")
        upgrade_to(dsn, "dirty_runs")
        assert world.rows("select has_table_privilege('prune_caller', 'pgflow.run_work', 'select')") == [
            (True,)
        ]
        world.do("revoke select on pgflow.run_work from prune_caller")
        with psycopg.connect(make_conninfo(dsn, user="prune_caller"), autocommit=True) as caller:
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="run_work"):
                caller.execute("select pgflow.prune_data_older_than('30 days')")
            assert world.runs() == [(1, "completed"), (2, "completed")]
            world.do("grant select on pgflow.run_work to prune_caller")
            caller.execute("select pgflow.prune_data_older_than('30 days')")
        assert (world.runs(), world.archive("orders")) == ([], [])
    finally:
        world.do("drop owned by prune_caller")
        world.do("drop role prune_caller")
