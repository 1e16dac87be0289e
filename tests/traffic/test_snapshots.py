"""What the upgrade's rewrite of two tables means to snapshots and prepared statements from before it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from tests.traffic.flight import blocked_by_upgrade

from pgflow_migrate.errors import FenceError
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.upgrade.progress import Event, FileDone
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.session import Fence

Connection = psycopg.Connection[dict[str, Any]]

REWRITTEN = ["steps", "step_tasks"]
SHORT = Fence(timedelta(milliseconds=200), timedelta(milliseconds=200))
KEPT = ["flows", "runs", "step_states"]


@pytest.fixture
def dsn(database_at: Callable[[str], str], connect: Callable[[str], Connection]) -> str:
    """A 0.16.0 database with one of everything."""
    dsn = database_at("core_0_16_0")
    session = connect(dsn)
    session.execute("select pgflow.create_flow('Orders')")
    session.execute("select pgflow.add_step('Orders', 'pack')")
    session.execute("select pgflow.start_flow('Orders', '{}')")
    session.execute(
        "create function public.counted() returns bigint stable language plpgsql"
        " as 'begin return (select count(*) from pgflow.step_tasks); end'"
    )
    session.execute(
        "create function public.counted_volatile() returns bigint language plpgsql"
        " as 'begin return (select count(*) from pgflow.step_tasks); end'"
    )
    return dsn


def count(session: Connection, table: str) -> int:
    """How many rows a session sees."""
    (row,) = session.execute(f"select count(*) as n from pgflow.{table}".encode()).fetchall()
    number: int = row["n"]
    return number


@pytest.mark.parametrize("application", ["pg_dump", "another reader"])
def test_a_dump_that_begins_under_the_upgrade_stops_it_and_other_snapshots_find_rewritten_tables_empty(
    dsn: str, connect: Callable[[str], Connection], application: str
) -> None:
    """A dump takes its snapshot, then waits for its locks. Others that do so cannot be told from calls."""
    dump = connect(dsn)
    dump.isolation_level = IsolationLevel.REPEATABLE_READ
    dump.execute("select set_config('application_name', %s, false)", (application,))
    locked: list[Future[Any]] = []
    with ThreadPoolExecutor() as pool, dump.transaction():

        def listen(event: Event) -> None:
            if isinstance(event, FileDone) and event.file == "fence.sql" and not locked:
                dump.execute("select 1")
                locked.append(pool.submit(dump.execute, "lock table pgflow.runs in access share mode"))
                blocked_by_upgrade(dsn, dump.info.backend_pid, locked[0])

        if application == "pg_dump":
            with pytest.raises(FenceError):
                upgrade(dsn, on_progress=listen)
        else:
            upgrade(dsn, on_progress=listen)
        locked[0].result(30)
        rows = 1 if application == "pg_dump" else 0
        assert {table: count(dump, table) for table in REWRITTEN} == dict.fromkeys(REWRITTEN, rows)
        assert {table: count(dump, table) for table in KEPT} == dict.fromkeys(KEPT, 1)
    with dump.transaction():
        assert {table: count(dump, table) for table in REWRITTEN} == dict.fromkeys(REWRITTEN, 1)


def test_a_snapshot_from_before_stops_the_upgrade_and_is_named(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    dump = connect(dsn)
    dump.isolation_level = IsolationLevel.REPEATABLE_READ
    with dump.transaction():
        dump.execute("select 1")
        with pytest.raises(FenceError) as caught:
            upgrade(dsn, fence=SHORT)
        assert {blocker.pid: blocker.holds for blocker in caught.value.blockers} == {
            dump.info.backend_pid: ("a snapshot from before the upgrade",)
        }
        assert {table: count(dump, table) for table in REWRITTEN} == {"steps": 1, "step_tasks": 1}


def test_a_dump_at_work_elsewhere_is_seen_before_anything_is_done(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    """It holds no lock on our tables yet, and is not idle either."""
    dump, holder = connect(dsn), connect(dsn)
    dump.isolation_level = IsolationLevel.REPEATABLE_READ
    dump.execute("set application_name = 'pg_dump'")
    holder.execute("select pg_advisory_lock(1)")
    done: list[Event] = []
    with ThreadPoolExecutor() as pool:
        busy = pool.submit(dump.execute, "select pg_advisory_lock(1)")
        at_work = "select from pg_stat_activity where pid = %s and wait_event = 'advisory'"
        while not holder.execute(at_work, (dump.info.backend_pid,)).fetchall():
            assert not busy.done(), busy.exception()
        try:
            with pytest.raises(FenceError) as caught:
                upgrade(dsn, fence=SHORT, on_progress=done.append)
        finally:
            holder.execute("select pg_advisory_unlock(1)")
    assert [blocker.pid for blocker in caught.value.blockers] == [dump.info.backend_pid]
    assert [event.file for event in done if isinstance(event, FileDone)] == ["live_workers.sql"]


def test_a_snapshot_that_ends_is_waited_for_no_longer(dsn: str, connect: Callable[[str], Connection]) -> None:
    dump = connect(dsn)
    dump.isolation_level = IsolationLevel.REPEATABLE_READ
    with ThreadPoolExecutor() as pool:
        with dump.transaction():
            dump.execute("select 1")
            observer = connect(dsn)
            upgrading = pool.submit(upgrade, dsn, fence=Fence(timedelta(seconds=1), timedelta(seconds=8)))
            # It has seen the snapshot, and sleeps between two tries.
            while not observer.execute(
                "select from pg_stat_activity where datname = current_database()"
                " and application_name = 'pgflow-migrate' and wait_event = 'PgSleep'"
            ).fetchall():
                assert not upgrading.done(), upgrading.exception()
        assert upgrading.result(60).revision == HEAD


@pytest.mark.parametrize("table", REWRITTEN)
def test_a_snapshot_that_has_read_a_rewritten_table_is_waited_for(
    dsn: str, connect: Callable[[str], Connection], table: str
) -> None:
    reader = connect(dsn)
    reader.isolation_level = IsolationLevel.REPEATABLE_READ
    with reader.transaction():
        assert count(reader, table) == 1
        with pytest.raises(FenceError):
            upgrade(dsn, fence=SHORT)
        assert count(reader, table) == 1


@pytest.mark.parametrize(("function", "counted"), [("counted", 0), ("counted_volatile", 1)])
def test_a_function_that_waits_with_its_callers_snapshot_finds_them_empty_once(
    dsn: str, connect: Callable[[str], Connection], function: str, counted: int
) -> None:
    """STABLE ones of the application's do; pgflow's calls are VOLATILE, and look anew after each wait."""
    caller = connect(dsn)
    query = f"select public.{function}() as n"
    started: list[Future[Any]] = []
    with ThreadPoolExecutor() as pool:

        def listen(event: Event) -> None:
            if isinstance(event, FileDone) and event.file == "fence.sql" and not started:
                started.append(pool.submit(caller.execute, query.encode()))
                blocked_by_upgrade(dsn, caller.info.backend_pid, started[0])

        upgrade(dsn, on_progress=listen)
        assert started[0].result(30).fetchall() == [{"n": counted}]
    assert caller.execute(query.encode()).fetchall() == [{"n": 1}]


FAIL_PREPARED = [
    "select * from pgflow.steps",
    "select * from pgflow.step_tasks",
    "select * from pgflow.worker_functions",
    "select * from pgflow.add_step('Orders', 'pack')",
    "select * from pgflow.complete_task(gen_random_uuid(), 'pack', 0, '{}')",
    "select * from pgflow.fail_task(gen_random_uuid(), 'pack', 0, 'no')",
]
GO_ON_PREPARED = [
    "select run_id, status from pgflow.step_tasks",
    "select * from pgflow.runs",
    "select * from pgflow.step_states",
    "select * from pgflow.flows",
    "select * from pgflow.start_flow('Orders', '{}')",
    "select * from pgflow.create_flow('Orders')",
    "select * from pgflow.start_tasks('Orders', '{}', null)",
    "select pgflow.complete_task(gen_random_uuid(), 'pack', 0, '{}')",
    "select pgflow.requeue_stalled_tasks()",
]


def test_prepared_statements_fail_if_their_columns_have_changed_until_they_are_prepared_anew(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    session = connect(dsn)
    session.prepare_threshold = 0
    for query in FAIL_PREPARED + GO_ON_PREPARED:
        session.execute(query.encode())
    upgrade(dsn)
    for query in GO_ON_PREPARED:
        session.execute(query.encode())
    for query in FAIL_PREPARED * 2:
        with pytest.raises(psycopg.errors.FeatureNotSupported) as caught:
            session.execute(query.encode())
        assert caught.value.diag.message_primary == "cached plan must not change result type"
    session.prepare_threshold = None
    for query in FAIL_PREPARED:
        session.execute(query.encode(), prepare=False)
