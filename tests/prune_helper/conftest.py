"""A database that is described in a few words, and stand-ins for the documented helpers."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from psycopg.rows import tuple_row

from pgflow_migrate import prune_helper, resources

Connection = psycopg.Connection[dict[str, Any]]
Rows = list[tuple[Any, ...]]


@dataclass(frozen=True)
class StandIn:
    """A helper in the place of a documented one, whose text belongs to pgflow's documentation.

    Attributes:
        create: the statement that installs it.
        md5: the sum of its body, normalised.
    """

    create: str
    md5: str


class World:
    """A database as the tests arrange it and look at it, over one connection."""

    def __init__(self, connection: Connection, threads: ThreadPoolExecutor) -> None:
        self.connection = connection
        self._threads = threads

    def rows(self, query: str, *parameters: object) -> Rows:
        """What a query returns, as tuples."""
        cursor = self.connection.cursor(row_factory=tuple_row)
        return cursor.execute(query.encode(), parameters or None).fetchall()

    def do(self, statement: str, *parameters: object) -> None:
        """Run a statement."""
        self.connection.execute(statement.encode(), parameters or None)

    def prune(self, interval: str | None = "30 days") -> None:
        """Call the helper."""
        self.do("select pgflow.prune_data_older_than(%s::interval)", interval)

    def flow(self, slug: str, *steps: str, **options: object) -> None:
        """Define a flow of single steps that depend on nothing."""
        self.do("select pgflow.create_flow(%s)", slug)
        named = "".join(f", {name} => {value}" for name, value in options.items())
        for step in steps:
            self.do(f"select pgflow.add_step(%s, %s{named})", slug, step)

    def route(self, slug: str, step: str, queue: str) -> None:
        """Send the step's tasks to another queue of the flow's, from now on."""
        self.do("select pgmq.create(%s)", queue)
        self.do(
            "update pgflow.steps set queue_name = %s where flow_slug = %s and step_slug = %s",
            queue,
            slug,
            step,
        )

    def start(self, slug: str, number: int) -> str:
        """Start a run; returns its id, which ends with the number."""
        run = self.id(number)
        self.do("select pgflow.start_flow(%s, '{}', %s)", slug, run)
        return run

    @staticmethod
    def id(number: int) -> str:
        """The uuid that ends with a number."""
        return f"00000000-0000-4000-8000-{number:012}"

    def worker(self, number: int, *, silent_for: str = "0 days") -> str:
        """Register a worker; returns its id."""
        self.do(
            "insert into pgflow.workers (worker_id, queue_name, function_name, last_heartbeat_at)"
            " values (%s, 'orders', 'fetch', now() - %s::interval)",
            self.id(number),
            silent_for,
        )
        return self.id(number)

    def claim(self, run: str, worker_id: str | None = None) -> None:
        """Claim all queued tasks of a run, whichever queues they are in."""
        for queue, slug, ids in self.rows(
            "select queue_name, flow_slug, array_agg(message_id) from pgflow.step_tasks"
            " where run_id = %s and status = 'queued' group by 1, 2",
            run,
        ):
            assert self.rows(
                "select pgflow.claim_tasks(%s, %s, %s, %s) ->> 'outcome'", queue, slug, ids, worker_id
            ) == [("claimed",)]

    def complete(self, run: str, *steps: str) -> None:
        """Claim a run's tasks, and complete these."""
        self.claim(run)
        for step in steps:
            self.do("select pgflow.complete_task(%s, %s, 0, '1')", run, step)

    def fail(self, run: str, step: str) -> None:
        """Claim a run's tasks, and let this one fail for good."""
        self.claim(run)
        self.do("select pgflow.fail_task(%s, %s, 0, 'no')", run, step)

    def age(self, run: str, by: str) -> None:
        """Let a run and its archived messages be older."""
        self.do(
            "update pgflow.runs set started_at = started_at - age, completed_at = completed_at - age,"
            " failed_at = failed_at - age from (select %s::interval as age) a where run_id = %s",
            by,
            run,
        )
        for queue in self.queues(run):
            self.do(
                f"update pgmq.a_{queue} set archived_at = archived_at - %s::interval"
                " where message ->> 'run_id' = %s",
                by,
                run,
            )

    def requeue(self, run: str) -> None:
        """Put a run's archived messages into their queues again, as if they had never left."""
        for queue in self.queues(run):
            self.do(
                f"""
                with moved as (delete from pgmq.a_{queue} where message ->> 'run_id' = %s returning *)
                insert into pgmq.q_{queue} (msg_id, read_ct, enqueued_at, vt, message)
                overriding system value
                select msg_id, read_ct, enqueued_at, vt, message from moved
                """,
                run,
            )

    def queues(self, run: str) -> list[str]:
        """The queues of a run's tasks."""
        found = self.rows("select distinct queue_name from pgflow.step_tasks where run_id = %s", run)
        return [queue for (queue,) in found]

    def runs(self) -> Rows:
        """Number and status of each run."""
        return self.rows("select right(run_id::text, 3)::int, status from pgflow.runs order by 1")

    def states(self) -> Rows:
        """Number of the run, step and status of each step state."""
        return self.rows(
            "select right(run_id::text, 3)::int, step_slug, status from pgflow.step_states order by 1, 2"
        )

    def tasks(self) -> Rows:
        """Number of the run, step, queue, message and status of each task."""
        return self.rows(
            "select right(run_id::text, 3)::int, step_slug, queue_name, message_id, status"
            " from pgflow.step_tasks order by 1, 2, task_index"
        )

    def messages(self, queue: str) -> list[int]:
        """Ids of the messages in a queue."""
        return [msg_id for (msg_id,) in self.rows(f"select msg_id from pgmq.q_{queue} order by 1")]

    def archive(self, queue: str) -> list[int]:
        """Ids of a queue's archived messages."""
        return [msg_id for (msg_id,) in self.rows(f"select msg_id from pgmq.a_{queue} order by 1")]

    def meanwhile(self, statement: str) -> Future[None]:
        """Run a statement in a thread."""
        return self._threads.submit(self.do, statement)

    def waits(self, other: World, query: str, *parameters: object) -> Future[Rows]:
        """Let ``other`` run a query, and return as soon as it waits for a lock."""
        call = self._threads.submit(other.rows, query, *parameters)
        deadline = time.monotonic() + 20
        while not self.rows(
            "select from pg_stat_activity where pid = %s and wait_event_type = 'Lock'",
            other.connection.info.backend_pid,
        ):
            assert not call.done(), f"it did not wait: {call.result()}"
            assert time.monotonic() < deadline, "it waits for no lock"
            time.sleep(0.01)
        return call


@pytest.fixture
def stand_in() -> Callable[[str], StandIn]:
    """The helper that scenario ``prune_helper_<kind>`` installs."""

    def read(kind: str) -> StandIn:
        scenario = resources.fixtures() / "0.16.0" / f"prune_helper_{kind}" / "populate.sql"
        before, body, after = scenario.read_text(encoding="utf-8").split("$$")
        normalised = prune_helper.normalised(body)
        return StandIn(
            f"{before}$${body}$${after.partition(';')[0]}",
            hashlib.md5(normalised.encode(), usedforsecurity=False).hexdigest(),
        )

    return read


@pytest.fixture
def worlds(connect: Callable[[str], Connection]) -> Iterator[Callable[[str], World]]:
    """Open a connection to a database as a :class:`World`."""
    with ThreadPoolExecutor() as threads:
        yield lambda dsn: World(connect(dsn), threads)


@pytest.fixture
def dsn(database_at: Callable[[str], str]) -> str:
    """An empty database with queue identity and the helper."""
    dsn = database_at("queue_identity")
    with psycopg.connect(dsn) as connection:
        connection.execute(prune_helper.script().encode())
    return dsn


@pytest.fixture
def world(dsn: str, worlds: Callable[[str], World]) -> World:
    """A connection to it."""
    return worlds(dsn)


@pytest.fixture
def other(dsn: str, worlds: Callable[[str], World]) -> World:
    """A second connection to it, which may wait."""
    return worlds(dsn)
