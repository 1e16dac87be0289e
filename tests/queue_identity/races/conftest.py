"""Races with explicit barriers: one session holds its locks, another is seen waiting, then the first ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from tests.core.runtime.conftest import PATIENCE, WORKER, Core, Row
from tests.queue_identity.laws import breaches

Call = Callable[["Session"], Any]

DEADLOCK_TIMEOUT = "20ms"
CAPABLE = Jsonb({"queueIdentity": True})


def shape(*steps: str) -> Jsonb:
    """The shape that a worker sends for single steps without dependencies."""
    return Jsonb(
        {
            "steps": [
                {
                    "slug": step,
                    "stepType": "single",
                    "dependencies": [],
                    "whenUnmet": "skip",
                    "whenExhausted": "fail",
                    "requiredInputPattern": {"defined": False},
                    "forbiddenInputPattern": {"defined": False},
                }
                for step in steps
            ]
        }
    )


class Session(Core):
    """A session after queue identity, with the calls that race."""

    def compile(self, flow: str, *steps: str) -> Any:
        """Start-up of a worker: the status that it is told."""
        return self.value("select pgflow.ensure_flow_compiled(%s, %s, %s)", flow, shape(*steps), CAPABLE)[
            "status"
        ]

    def create_flow(self, flow: str) -> Any:
        """Register a flow; returns its slug."""
        return self.row("select * from pgflow.create_flow(%s)", flow)["flow_slug"]

    def add_step(self, flow: str, step: str) -> Any:
        """Append a step; returns its slug."""
        return self.row("select * from pgflow.add_step(%s, %s)", flow, step)["step_slug"]

    def delete(self, flow: str) -> None:
        """Delete a flow and all that it has."""
        self.execute("select pgflow.delete_flow_and_data(%s)", flow)

    def claim_batch(self, queue: str, flow: str, ids: list[int], worker: UUID | None = WORKER) -> Any:
        """Claim messages; the whole outcome."""
        return self.value(
            "select pgflow.claim_tasks(%s, %s, %s::bigint[], %s::uuid)", queue, flow, ids, worker
        )

    def claimed(self, flow: str, ids: list[int], worker: UUID | None = WORKER) -> dict[str, Any]:
        """Claim messages of a flow's own queue; message ids by what became of them, in few words."""
        outcome = self.claim_batch(flow, flow, ids, worker)
        if outcome["outcome"] == "fatal":
            return {"fatal": [(message["msg_id"], message["reason"]) for message in outcome["messages"]]}
        groups = {
            "claimed": sorted(int(task["msg_id"]) for task in outcome["tasks"]),
            **{
                kind: [int(one) for one in outcome[kind]]
                for kind in ("deferred", "archived", "busy", "foreign")
            },
        }
        return {kind: ids for kind, ids in groups.items() if ids}

    def wait_until_waiting(self, looker: Core, call: Future[Any]) -> None:
        """Return as soon as this session's call waits for a lock, whoever holds it."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert not call.done(), f"the call did not wait: {settled(call)!r:.300}"
            if looker.value("select cardinality(pg_blocking_pids(%s))", self.pid):
                return
        raise AssertionError("the call never waited for a lock")

    # -- what is there ---------------------------------------------------------------------------

    def traces(self, slug: str) -> list[str]:
        """Everything in the database that bears a flow's name, in any spelling."""
        rows = self.rows(
            """
            select 'flow ' || flow_slug as what from pgflow.flows where lower(flow_slug) = lower(%(slug)s)
            union all
            select 'step ' || step_slug || ' in ' || queue_name from pgflow.steps
            where lower(flow_slug) = lower(%(slug)s)
            union all
            select count(*) || ' runs' from pgflow.runs where lower(flow_slug) = lower(%(slug)s)
            having count(*) > 0
            union all
            select count(*) || ' tasks' from pgflow.step_tasks where lower(flow_slug) = lower(%(slug)s)
            having count(*) > 0
            union all
            select 'queue ' || queue_name from pgmq.meta where lower(queue_name) = lower(%(slug)s)
            union all
            select 'table ' || relname from pg_class
            where relnamespace = 'pgmq'::regnamespace and relkind = 'r'
              and relname in ('q_' || lower(%(slug)s), 'a_' || lower(%(slug)s))
            order by what
            """.replace("%(slug)s", f"'{slug}'")
        )
        return [row["what"] for row in rows]

    def progress(self, run_id: UUID) -> tuple[str, dict[str, str], dict[str, tuple[str, int, int]]]:
        """A run's status, its steps' states, and of each task the status, attempts and requeues."""
        tasks = self.rows(
            "select step_slug || '/' || task_index as key, status, attempts_count, requeued_count"
            " from pgflow.step_tasks where run_id = %s",
            run_id,
        )
        return (
            self.run(run_id)["status"],
            self.states(run_id),
            {task["key"]: (task["status"], task["attempts_count"], task["requeued_count"]) for task in tasks},
        )


@dataclass(frozen=True)
class Outcome:
    """What the two calls of a race returned; a database error of the second as the error itself."""

    first: Any
    second: Any

    @property
    def sqlstate(self) -> str | None:
        """The SQLSTATE of the second call, None when it succeeded."""
        return self.second.sqlstate if isinstance(self.second, psycopg.Error) else None

    @property
    def message(self) -> str | None:
        """The message of the second call's error."""
        return self.second.diag.message_primary if isinstance(self.second, psycopg.Error) else None


class _RolledBack(Exception):  # noqa: N818 - it is no error
    """Ends a transaction without a trace."""


class Race:
    """Two sessions that race, and more of them on demand."""

    def __init__(self, open_: Callable[[], Session]) -> None:
        self.open = open_
        self.one, self.two = open_(), open_()
        self.tidy = ""  # what puts away objects that a test has damaged, before the laws are looked at

    @contextmanager
    def held(self, first: Call, *, commit: bool = True) -> Iterator[Any]:
        """The body runs while the first session holds the locks of its call."""
        try:
            with self.one.transaction():
                yield first(self.one)
                if not commit:
                    raise _RolledBack
        except _RolledBack:
            pass

    def run(self, first: Call, second: Call, *, commit: bool = True) -> Outcome:
        """The first call holds its locks, the second is seen waiting for them, then the first ends."""
        with self.held(first, commit=commit) as result:
            waiter = self.two.in_background(lambda: second(self.two))
            self.one.wait_until_blocked(self.two, waiter)
        return Outcome(result, settled(waiter))

    def run_past(self, first: Call, second: Call, *, commit: bool = True) -> Outcome:
        """The first call holds its locks, and the second ends without waiting for them."""
        with self.held(first, commit=commit) as result:
            passed = settled(self.two.in_background(lambda: second(self.two)))
        return Outcome(result, passed)


def settled(call: Future[Any]) -> Any:
    """The result of a call, or the database error that it ended with; a deadlock is never an answer."""
    try:
        return call.result(PATIENCE)
    except psycopg.errors.DeadlockDetected:
        raise
    except psycopg.Error as error:
        return error


@pytest.fixture
def race(database_at: Callable[[str], str], revision: str) -> Iterator[Race]:
    """Sessions in a database of the test's own; at the end every law must hold there."""
    dsn = database_at(revision)
    opened: list[psycopg.Connection[Row]] = []

    def open_() -> Session:
        options = f"-c statement_timeout={PATIENCE:.0f}s -c deadlock_timeout={DEADLOCK_TIMEOUT}"
        opened.append(psycopg.connect(dsn, autocommit=True, row_factory=dict_row, options=options))
        return Session(opened[-1], revision)

    try:
        race = Race(open_)
        yield race
        if race.tidy:
            race.one.execute(race.tidy)
        assert breaches(race.one.connection) == []
    finally:
        for connection in opened:
            connection.close()
