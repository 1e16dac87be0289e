"""One database for all, with runs of both protocols in every situation; what a test does is rolled back."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import tuple_row
from tests.dirty_runs.protocol import Row, Session

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

_numbers = itertools.count(1)

WORKER_OF_1 = UUID("00000000-0000-4000-8000-000000000001")


@dataclass
class World:
    """Runs of both protocols in one database.

    Attributes:
        session: a connection, inside a transaction that is rolled back at the end of the test.
        flow: the flow of the runs of protocol 2, steps a → b.
        runs: runs of protocol 2 by their situation.
        plain: runs of protocol 1, of flow ``plain``, by their situation.
    """

    session: Session
    flow: str = "demo"
    runs: dict[str, UUID] = field(default_factory=dict)
    plain: dict[str, UUID] = field(default_factory=dict)

    def tasks(self) -> list[Row]:
        """Tasks of protocol 2."""
        return self.session.rows(
            "select t.* from pgflow.step_tasks t join pgflow.runs r using (run_id)"
            " where r.run_id in (select run_id from pgflow.run_work) order by t.queue_name, t.message_id"
        )

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """No row of pgflow or PGMQ is another after the block."""
        before = self.session.everything()
        yield
        assert self.session.everything() == before

    def values(self, query: str, named: Mapping[str, object] | None = None) -> list[Any]:
        """The values of a query of one column."""
        cursor = self.session.connection.cursor(row_factory=tuple_row)
        return [value for (value,) in cursor.execute(query.encode(), named).fetchall()]

    def error(self, query: str, named: Mapping[str, object] | None = None) -> psycopg.Error:
        """The error that a statement raises; it is rolled back."""
        with pytest.raises(psycopg.Error) as caught, self.session.connection.transaction():
            self.session.connection.execute(query.encode(), named)
        return caught.value


def populate(session: Session, flow: str = "demo", *, queues: bool = False) -> World:
    """Runs of protocol 2 of ``flow`` and runs of protocol 1 of flow ``plain``."""
    world = World(session, flow)
    session.define(flow, queues=queues)
    for situation in ("queued", "held", "dispatched", "failed", "completed", "attention"):
        world.runs[situation] = session.started(flow)
    session.claimed(world.runs["held"], "a")
    for situation in ("dispatched", "completed"):
        session.complete(session.claimed(world.runs[situation], "a"), 1)
        assert session.reconcile(world.runs[situation])["outcome"] == "dispatched"
    session.fail(session.claimed(world.runs["failed"], "a"))
    session.settle_down(world.runs["completed"])
    session.complete(session.claimed(world.runs["completed"], "b"), 2)
    session.settle_down(world.runs["completed"])
    for outcome in ("recovered", "attention"):
        claim = session.claimed(world.runs["attention"], "a")
        session.expire(claim)
        assert session.recover(world.runs["attention"], "a", claim)["outcome"] == outcome

    session.execute(
        "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, 'plain', 'fetch')",
        WORKER_OF_1,
    )
    session.execute("select pgflow.track_worker_function('fetch')")
    session.define("plain")
    for situation in ("queued", "started", "failed"):
        world.plain[situation] = session.value("select run_id from pgflow.start_flow('plain', '{}')")
    for situation in ("started", "failed"):
        session.execute(
            "select pgflow.start_tasks('plain', array(select message_id from pgflow.step_tasks"
            " where run_id = %s), %s)",
            world.plain[situation],
            WORKER_OF_1,
        )
    session.execute("select pgflow.fail_task(%s, 'a', 0, 'no')", world.plain["failed"])
    return world


@contextmanager
def database(server: Server, templates: Templates) -> Iterator[str]:
    """A database with protocol 2 for as long as the block runs."""
    name = f"isolation_{next(_numbers)}"
    dsn = templates.clone("dirty_runs", name)
    try:
        yield dsn
    finally:
        server.drop_database(name)


@pytest.fixture(scope="session")
def populated(server: Server, templates: Templates) -> Iterator[World]:
    """The database in the mode with one queue a flow."""
    with database(server, templates) as dsn:
        session = Session(dsn)
        yield populate(session)
        session.close()


@pytest.fixture(scope="session")
def populated_queues(server: Server, templates: Templates) -> Iterator[World]:
    """The database in the mode with one queue a step."""
    with database(server, templates) as dsn:
        session = Session(dsn)
        yield populate(session, "splitFlow", queues=True)
        session.close()


@pytest.fixture(params=["one queue", "queue a step"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    """Both modes; what the test does is rolled back."""
    found: World = request.getfixturevalue(
        "populated" if request.param == "one queue" else "populated_queues"
    )
    with found.session.connection.transaction(force_rollback=True):
        yield found


@pytest.fixture
def demo_world(populated: World) -> Iterator[World]:
    """The mode with one queue a flow; what the test does is rolled back."""
    with populated.session.connection.transaction(force_rollback=True):
        yield populated


@pytest.fixture(scope="module")
def lasting(server: Server, templates: Templates) -> Iterator[Session]:
    """A session on an empty database of the module's, where all is committed: tests define their own."""
    with database(server, templates) as dsn:
        session = Session(dsn)
        yield session
        session.close()
