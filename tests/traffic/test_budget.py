"""When the locks are not to be had: who is named, and what everybody else feels meanwhile."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgflow_migrate.errors import EXIT_FENCE, FenceError
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import open_server
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.session import Fence

Connection = psycopg.Connection[dict[str, Any]]

LOCK_TIMEOUT = 0.5
SHORT = timedelta(milliseconds=200)
FENCE = Fence(timedelta(seconds=LOCK_TIMEOUT), timedelta(seconds=2.5))
LONG_QUERY = "lock table pgflow.step_states\n  in row exclusive mode /* " + "x" * 200 + " */"


@pytest.fixture
def dsn(database_at: Callable[[str], str], connect: Callable[[str], Connection]) -> str:
    """A 0.16.0 database with one flow."""
    dsn = database_at("core_0_16_0")
    connect(dsn).execute("select pgflow.create_flow('Orders'); select pgflow.add_step('Orders', 'pack')")
    return dsn


@contextmanager
def holding(dsn: str, statement: str) -> Iterator[int]:
    """Keep what a statement locks, idle in a transaction; the pid."""
    with psycopg.connect(dsn, application_name="the holder") as connection:
        connection.execute(statement.encode())
        yield connection.info.backend_pid
        connection.rollback()


def test_a_session_idle_in_its_transaction_is_named_with_all_that_is_known(dsn: str) -> None:
    with holding(dsn, LONG_QUERY) as pid, pytest.raises(FenceError) as caught:
        upgrade(dsn, fence=Fence(SHORT, SHORT))
    assert caught.value.exit_code == EXIT_FENCE
    (blocker,) = caught.value.blockers
    assert (blocker.pid, blocker.application, blocker.state) == (pid, "the holder", "idle in transaction")
    assert blocker.user == psycopg.conninfo.conninfo_to_dict(dsn)["user"]
    assert blocker.query == re.sub(r"\s+", " ", LONG_QUERY)[:120]
    assert blocker.transaction_age is not None
    assert blocker.query_age is not None
    assert 0 < blocker.query_age <= blocker.transaction_age < 60
    assert blocker.holds == ("pgflow.step_states",)
    assert re.fullmatch(
        rf'pid {pid} \(user \w+, "the holder", idle in transaction, in its transaction for \d+ s,'
        r" last statement \d+ s ago: lock table pgflow.step_states in row exclusive mode /\* x+\)"
        r" holds pgflow.step_states",
        str(blocker),
    )


def test_a_session_at_work_is_named_with_its_statement(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    holder, observer = connect(dsn), connect(dsn)
    query = "select count(*), pg_sleep(300) from pgflow.deps"
    with ThreadPoolExecutor() as pool:
        working = pool.submit(holder.execute, query)
        while not observer.execute(
            "select from pg_locks where pid = %s and relation = 'pgflow.deps'::regclass",
            (holder.info.backend_pid,),
        ).fetchall():
            assert not working.done()
        with pytest.raises(FenceError) as caught:
            upgrade(dsn, fence=Fence(SHORT, SHORT))
        observer.execute("select pg_cancel_backend(%s)", (holder.info.backend_pid,))
        with pytest.raises(psycopg.errors.QueryCanceled):
            working.result(30)
    blockers = {blocker.pid: blocker for blocker in caught.value.blockers}
    found = blockers[holder.info.backend_pid]
    assert (found.state, found.query, found.holds) == ("active", query, ("pgflow.deps",))


@pytest.mark.parametrize(
    ("table", "felt"),
    # Busy metadata are waited for alone from the second try on, and producers do not need them.
    [("pgflow.runs", 2), ("pgflow.step_tasks", 2), ("pgmq.q_orders", 2), ("pgmq.meta", 1)],
)
def test_between_its_tries_everybody_gets_through_and_nobody_waits_longer_than_the_timeout(
    dsn: str, table: str, felt: int
) -> None:
    """Producers meanwhile: each gets through; the longest has waited for one try, no more."""
    waits: list[float] = []
    over = threading.Event()

    def produce() -> None:
        with psycopg.connect(dsn, autocommit=True) as producer:
            while not over.is_set():
                began = time.monotonic()
                producer.execute("select pgflow.start_flow('Orders', '{}')")
                waits.append(time.monotonic() - began)

    with ThreadPoolExecutor() as pool, holding(dsn, f"lock table {table} in row exclusive mode"):
        producing = pool.submit(produce)
        with pytest.raises(FenceError):
            upgrade(dsn, fence=FENCE)
        over.set()
        producing.result(30)
    blocked = [wait for wait in waits if wait > LOCK_TIMEOUT / 2]
    assert len(blocked) >= felt, f"they felt nothing: {waits}"
    assert len(waits) > len(blocked)
    # A second for the producer's own work on a busy machine; all tries together take two and a half.
    assert max(waits) < LOCK_TIMEOUT + 1.0


def test_a_prepared_transaction_is_named() -> None:
    with open_server("embedded:18", settings={"max_prepared_transactions": "2"}) as server:
        dsn = Templates(server).clone("core_0_16_0", "prepared")
        with psycopg.connect(dsn, autocommit=True) as holder:
            holder.execute("begin")
            holder.execute("lock table pgflow.runs in row exclusive mode")
            holder.execute("prepare transaction 'left over'")
            with pytest.raises(FenceError) as caught:
                upgrade(dsn, fence=Fence(SHORT, SHORT))
            holder.execute("rollback prepared 'left over'")
        (blocker,) = caught.value.blockers
        assert blocker.holds == ("pgflow.runs",)
        assert "prepared" in str(blocker)
        assert "left over" in str(blocker)
