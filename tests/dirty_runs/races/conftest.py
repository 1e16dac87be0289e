"""One database for a file's races, and two sessions that meet in it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import psycopg
import pytest
from tests.dirty_runs.protocol import Session

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

T = TypeVar("T")

PATIENCE = 20.0
DEADLOCK_TIMEOUT = "20ms"

_numbers = itertools.count(1)


class Meeting:
    """Sessions one and two, and a third that watches; all in one database.

    Args:
        dsn: the database, with protocol 2.
    """

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.sessions: list[Session] = []
        self.one, self.two, self.watcher = self.open(), self.open(), self.open()
        self._pool = ThreadPoolExecutor(max_workers=4)
        self._flows = itertools.count(1)
        self.shared = self.new_flow()

    def open(self) -> Session:
        """A further session. Whoever waits for a lock looks for deadlocks almost at once."""
        session = Session(self.dsn)
        session.execute(f"set deadlock_timeout = '{DEADLOCK_TIMEOUT}'")
        session.execute(f"set statement_timeout = '{PATIENCE:.0f}s'")
        self.sessions.append(session)
        return session

    def close(self) -> None:
        self._pool.shutdown()
        for session in self.sessions:
            session.close()

    def new_flow(self) -> str:
        """Define a flow a → b of its own."""
        flow = f"flow_{next(self._flows)}"
        self.watcher.define(flow)
        return flow

    def background(self, call: Callable[[], T]) -> Future[T]:
        """Begin a call of another session."""
        return self._pool.submit(call)

    def wait_until_blocked(self, by: Session, waiting: Session, call: Future[T]) -> None:
        """Return as soon as a session's call waits for a lock that the other one has."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if self.watcher.value("select %s = any (pg_blocking_pids(%s))", by.pid, waiting.pid):
                return
            assert not call.done(), f"the call did not wait: {call.result()!r:.300}"
        raise AssertionError("the call never waited for the other session")

    def meet(
        self,
        first: Callable[[Session], T],
        second: Callable[[Session], T],
        *,
        commit: bool = True,
        waits: bool = True,
    ) -> tuple[T, T]:
        """The first call is made and its transaction stays open; then comes the second.

        Args:
            first: what session one does.
            second: what session two does.
            commit: how session one ends; else it rolls back.
            waits: whether the second is seen waiting for that; else it answers before.
        """
        with self.one.connection.transaction():
            came_first = first(self.one)
            call = self.background(lambda: second(self.two))
            if waits:
                self.wait_until_blocked(self.one, self.two, call)
            else:
                call.result(PATIENCE)
            if not commit:
                raise psycopg.Rollback
        return came_first, call.result(PATIENCE)


@pytest.fixture(scope="module")
def meeting(server: Server, templates: Templates) -> Iterator[Meeting]:
    """Sessions in a database of the file's own."""
    name = f"meeting_{next(_numbers)}"
    meeting = Meeting(templates.clone("dirty_runs", name))
    yield meeting
    meeting.close()
    server.drop_database(name)
