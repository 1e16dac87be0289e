"""The fence: which locks, in which mode, and nobody else pays for our waiting."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from pgflow_migrate import resources
from pgflow_migrate.upgrade.run import upgrade

Connection = psycopg.Connection[dict[str, Any]]
FENCE = (resources.revision_sql("queue_identity") / "fence.sql").read_text(encoding="utf-8").encode()
ORDERS = """
  select pgflow.create_flow('Orders');
  select pgflow.add_step('Orders', 'pack');
  select pgmq.create('unrelated');
"""


@pytest.fixture
def dsn(database_at: Callable[[str], str], connect: Callable[[str], Connection]) -> str:
    """A 0.16.0 database with one flow and a queue of somebody else's."""
    dsn = database_at("core_0_16_0")
    connect(dsn).execute(ORDERS.encode())
    return dsn


def wait_until(observer: Connection, condition: str, *values: object) -> None:
    """Return once the database says so; fail after 20 seconds."""
    for _ in range(2000):
        if observer.execute(condition.encode(), values).fetchone() is not None:
            return
        observer.execute("select pg_sleep(0.01)")
    raise AssertionError(f"never came true: {condition}")


def wait_until_blocked(observer: Connection, connection: Connection) -> None:
    wait_until(observer, "select where cardinality(pg_blocking_pids(%s)) > 0", connection.info.backend_pid)


def take_fence(ours: Connection, max_wait: str = "60s") -> bool:
    """Take the fence in a transaction of its own, waiting up to a minute."""
    with ours.transaction():
        ours.execute("select set_config('pgflow_migrate.max_wait', %s, true)", (max_wait,))
        ours.execute(FENCE)
    return True


def test_it_holds_the_documented_locks_and_no_other(dsn: str, connect: Callable[[str], Connection]) -> None:
    session = connect(dsn)
    with session.transaction():
        session.execute(FENCE)
        held = session.execute(
            """
            select c.relnamespace::regnamespace || '.' || c.relname as name, l.mode
            from pg_locks l
            join pg_class c on c.oid = l.relation
            where l.pid = pg_backend_pid() and c.relkind = 'r' and l.mode not in ('AccessShareLock')
            """
        ).fetchall()
        advisory = session.execute(
            "select classid::bigint << 32 | objid::bigint = hashtextextended('pgflow-migrate', 0) as ours"
            " from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'"
        ).fetchall()
    assert {row["name"]: row["mode"] for row in held} == {
        "pgflow.runs": "AccessExclusiveLock",
        "pgflow.step_states": "AccessExclusiveLock",
        "pgflow.step_tasks": "AccessExclusiveLock",
        "pgflow.flows": "AccessExclusiveLock",
        "pgflow.steps": "AccessExclusiveLock",
        "pgflow.deps": "AccessExclusiveLock",
        "pgflow.worker_functions": "AccessExclusiveLock",
        "pgmq.meta": "ShareLock",
        "pgmq.q_orders": "ShareLock",
    }
    assert advisory == [{"ours": True}]


def test_of_pgmqs_tables_the_one_of_all_queues_comes_first(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    holder, ours = connect(dsn), connect(dsn)
    with holder.transaction():
        holder.execute("lock table pgmq.q_orders, pgmq.meta in row exclusive mode")
        with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
            take_fence(ours, "1ms")
    assert 'SQL statement "lock table pgmq.meta in share mode' in (caught.value.diag.context or "")


def test_what_has_a_queues_name_and_is_no_table_is_left_to_the_preflight(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    ours = connect(dsn)
    ours.execute("select pgmq.drop_queue('Orders')")
    ours.execute("create sequence pgmq.q_orders")
    assert take_fence(ours)


def test_looking_for_live_workers_leaves_no_lock_that_the_fence_would_have_to_upgrade(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    session = connect(dsn)
    looking = (resources.revision_sql("queue_identity") / "live_workers.sql").read_text(encoding="utf-8")
    with session.transaction():
        session.execute(looking.encode())
        held = session.execute(
            """
            select c.relname
            from pg_locks l
            join pg_class c on c.oid = l.relation
            where l.pid = pg_backend_pid() and c.relnamespace = 'pgflow'::regnamespace and c.relkind = 'r'
            """
        ).fetchall()
    assert held == []


def test_a_second_revision_of_the_transaction_does_not_wait_with_the_locks_in_hand(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    """A snapshot that is taken behind the fence would make another try wait for it."""
    ours, reader = connect(dsn), connect(dsn)
    with ours.transaction():
        ours.execute("select set_config('pgflow_migrate.max_wait', '1s', true)")
        ours.execute(FENCE)
        with reader.transaction():
            reader.execute("set transaction isolation level repeatable read")
            reader.execute("select from pg_class")
            ours.execute(FENCE)
    # It goes with the transaction: the next one raises it anew, and minds the snapshot.
    with reader.transaction():
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select from pg_class")
        with pytest.raises(psycopg.errors.LockNotAvailable, match="snapshots from before the upgrade"):
            take_fence(ours, max_wait="1s")


def test_settings_go_with_the_transaction(dsn: str, connect: Callable[[str], Connection]) -> None:
    session = connect(dsn)
    with session.transaction():
        session.execute(FENCE)
        assert session.execute("show lock_timeout").fetchone() == {"lock_timeout": "5s"}
    assert session.execute("show lock_timeout").fetchone() == {"lock_timeout": "0"}


def test_a_producer_that_waits_behind_the_upgrade_goes_on_as_if_nothing_had_happened(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    holder, producer, observer = (connect(dsn) for _ in range(3))
    # Its plans and row types are from before.
    producer.execute("select * from pgflow.start_flow('Orders', '{}')")
    with ThreadPoolExecutor() as pool:
        # The holder makes the upgrade wait for its first table, so that the producer surely comes second.
        with holder.transaction():
            holder.execute("lock table pgflow.runs in access share mode")
            upgrading = pool.submit(upgrade, dsn)
            wait_until(
                observer,
                "select from pg_locks where relation = 'pgflow.runs'::regclass"
                " and mode = 'AccessExclusiveLock' and not granted",
            )
            started: Future[Any] = pool.submit(
                producer.execute, "select * from pgflow.start_flow('Orders', '{}')"
            )
            wait_until_blocked(observer, producer)
        result = upgrading.result(timeout=60)
        run = started.result(timeout=60).fetchone()
    assert [one.revision for one in result.applied] == ["queue_identity", "dirty_runs"]
    assert run is not None
    assert run["status"] == "started"
    tasks = observer.execute(
        "select queue_name, message_id, status from pgflow.step_tasks order by message_id"
    ).fetchall()
    assert tasks == [{"queue_name": "orders", "message_id": id_, "status": "queued"} for id_ in (1, 2)]
    assert observer.execute("select msg_id from pgmq.q_orders order by 1").fetchall() == [
        {"msg_id": 1},
        {"msg_id": 2},
    ]


def test_a_session_that_would_deadlock_with_us_never_hears_of_it(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    """It holds the queue that we want, and wants the tables that we hold: we step back, it goes on."""
    other, ours, observer = (connect(dsn) for _ in range(3))
    other.execute("begin")
    other.execute("select pgmq.send('Orders', '{\"from\": \"outside\"}'::jsonb, 0::integer)")
    with ThreadPoolExecutor() as pool:
        fenced = pool.submit(take_fence, ours)
        wait_until(
            observer, "select from pg_locks where relation = 'pgmq.q_orders'::regclass and mode = 'ShareLock'"
        )
        other.execute("select pgflow.start_flow('Orders', '{}')")
        assert not fenced.done()
        other.execute("commit")
        assert fenced.result(timeout=60)
    assert observer.execute(
        "select deadlocks from pg_stat_database where datname = current_database()"
    ).fetchone() == {"deadlocks": 0}


def test_a_session_that_has_long_waited_behind_us_is_no_deadlock_victim(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    """It holds our queue and waits behind us for pgflow.runs: its check comes soon after we get them."""
    holder, other, ours, observer = (connect(dsn) for _ in range(4))
    other.execute("begin")
    other.execute("select pgmq.send('Orders', '{\"from\": \"outside\"}'::jsonb, 0::integer)")
    holder.execute("begin")
    holder.execute("lock table pgflow.runs in access share mode")
    with ThreadPoolExecutor() as pool:
        fenced = pool.submit(take_fence, ours)
        wait_until_blocked(observer, ours)
        waiting = pool.submit(other.execute, "select pgflow.start_flow('Orders', '{}')")
        wait_until(
            observer,
            "select from pg_locks where pid = %s and clock_timestamp() - waitstart > interval '850 ms'",
            other.info.backend_pid,
        )
        holder.execute("commit")
        waiting.result(timeout=60)
        other.execute("commit")
        assert fenced.result(timeout=60)
    assert observer.execute("select count(*) as n from pgflow.runs").fetchone() == {"n": 1}
    assert observer.execute(
        "select deadlocks from pg_stat_database where datname = current_database()"
    ).fetchone() == {"deadlocks": 0}


@pytest.mark.parametrize("table", ["pgflow.step_tasks", "pgmq.meta", "pgmq.q_orders"])
def test_the_table_that_was_busy_is_waited_for_alone_in_the_next_try(
    dsn: str, connect: Callable[[str], Connection], table: str
) -> None:
    """So that the wait is long enough to end an autovacuum, and stops nobody else meanwhile."""
    holder, ours, observer = (connect(dsn) for _ in range(3))
    holder.execute("begin")
    holder.execute(f"lock table {table} in row exclusive mode".encode())
    with ThreadPoolExecutor() as pool:
        fenced = pool.submit(take_fence, ours)
        wait_until(
            observer,
            "select from pg_locks w where w.pid = %s and not w.granted and w.relation = %s::regclass"
            " and not exists (select from pg_locks h where h.pid = w.pid and h.granted"
            " and h.relation = 'pgflow.runs'::regclass)",
            ours.info.backend_pid,
            table,
        )
        holder.execute("commit")
        assert fenced.result(timeout=60)


def test_a_queue_that_is_dropped_while_we_wait_for_it_is_not_missed(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    holder, ours, observer = (connect(dsn) for _ in range(3))
    holder.execute("begin")
    holder.execute("select pgmq.drop_queue('Orders')")
    with ThreadPoolExecutor() as pool:
        fenced = pool.submit(take_fence, ours)
        wait_until_blocked(observer, ours)
        holder.execute("commit")
        assert fenced.result(timeout=60)


def test_when_the_budget_is_spent_every_lock_is_given_back(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    holder, ours, observer = (connect(dsn) for _ in range(3))
    with holder.transaction():
        holder.execute("lock table pgflow.steps in access share mode")
        ours.execute("begin")
        ours.execute("select set_config('pgflow_migrate.lock_timeout', '300ms', true)")
        ours.execute("savepoint before_the_fence")
        with pytest.raises(psycopg.errors.LockNotAvailable) as caught:
            ours.execute(FENCE)
        assert caught.value.sqlstate == "55P03"
        ours.execute("rollback to savepoint before_the_fence")
        held = observer.execute(
            "select relation::regclass::text as name from pg_locks"
            " where pid = %s and locktype in ('relation', 'advisory')"
            " and mode in ('AccessExclusiveLock', 'ShareLock', 'ExclusiveLock')",
            (ours.info.backend_pid,),
        ).fetchall()
        assert held == []
        ours.execute("rollback")
