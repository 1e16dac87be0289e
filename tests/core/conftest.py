"""What the suites of the old cores share: looking at a whole database, and waiting for a lock wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import tuple_row

Connection = psycopg.Connection[dict[str, Any]]
State = dict[str, list[dict[str, Any]]]

# Also what the stand-ins of pg_net and pg_cron record: a refused call must not have reached them.
_TABLES = (
    "pgflow.flows",
    "pgflow.steps",
    "pgflow.deps",
    "pgflow.runs",
    "pgflow.step_states",
    "pgflow.step_tasks",
    "pgflow.workers",
    "pgflow.worker_functions",
    "pgmq.meta",
    "realtime.messages",
    "net.http_request_queue",
    "cron.job",
    "cron.job_run_details",
)


@pytest.fixture(scope="session")
def state_of() -> Callable[[Connection], State]:
    """Read every row of pgflow, of the queues and of the events, to prove that nothing changed."""

    def read(connection: Connection) -> State:
        queues = connection.execute(
            "select relname from pg_class where relnamespace = 'pgmq'::regnamespace"
            " and relkind = 'r' and relname ~ '^[qa]_' order by 1"
        ).fetchall()
        tables = (*_TABLES, *(f"pgmq.{queue['relname']}" for queue in queues))
        query = sql.SQL(" union all ").join(
            sql.SQL("select {}::text, jsonb_agg(to_jsonb(t) order by to_jsonb(t)) from {} as t").format(
                table, sql.Identifier(*table.split("."))
            )
            for table in tables
        )
        cursor = connection.cursor(row_factory=tuple_row).execute(query)
        return {table: rows or [] for table, rows in cursor.fetchall()}

    return read


@pytest.fixture
def in_background() -> Iterator[Callable[..., Future[list[dict[str, Any]]]]]:
    """Run a statement on a connection in another thread; the future gives its rows."""
    with ThreadPoolExecutor() as pool:

        def run(connection: Connection, statement: str, *parameters: object) -> Future[list[dict[str, Any]]]:
            return pool.submit(lambda: connection.execute(statement, parameters).fetchall())

        yield run


@pytest.fixture(scope="session")
def until_waiting() -> Callable[[Connection, Connection], str]:
    """Block until a connection waits for a lock, as a third one sees it; returns what it waits for."""

    def wait(observer: Connection, waiter: Connection) -> str:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            found = observer.execute(
                "select wait_event from pg_stat_activity where pid = %s and wait_event_type = 'Lock'",
                (waiter.info.backend_pid,),
            ).fetchone()
            if found:
                return str(found["wait_event"])
        raise AssertionError("the second connection never waited for a lock")

    return wait
