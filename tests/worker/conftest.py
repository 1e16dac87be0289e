"""A database with queue identity, and workers in threads of the test."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.worker import Flow, Settings, Summary, Worker

Row = dict[str, Any]
PATIENCE = 30.0


class Running:
    """A worker that runs in a thread."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self._outcome: list[Summary | BaseException] = []
        self._thread = threading.Thread(target=self._run, name="worker under test")
        self._thread.start()

    def _run(self) -> None:
        try:
            self._outcome.append(self.worker.run())
        except BaseException as error:
            self._outcome.append(error)

    @property
    def alive(self) -> bool:
        """Whether it has not left yet."""
        return self._thread.is_alive()

    def summary(self) -> Summary:
        """Wait until it leaves by itself."""
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive(), "the worker does not leave"
        (outcome,) = self._outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def stop(self) -> Summary:
        """Tell it to stop, and wait until it does."""
        self.worker.stop()
        return self.summary()


class Bench:
    """One database, a connection to look at it with, and what a worker needs."""

    def __init__(self, dsn: str, connection: psycopg.Connection[Row], log: logging.Logger) -> None:
        self.dsn = dsn
        self.connection = connection
        self.log = log

    @staticmethod
    def eventually(condition: Callable[[], Any], what: str) -> Any:
        """Look again and again until ``condition()`` is true; returns what it gave."""
        end = time.monotonic() + PATIENCE
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < end, f"waited in vain: {what}"
            time.sleep(0.01)

    def rows(self, query: str, *values: Any) -> list[Row]:
        """All rows of a statement."""
        return self.connection.execute(query.encode(), values or None).fetchall()

    def execute(self, query: str, *values: Any) -> int:
        """A statement without a result; returns how many rows it changed."""
        return self.connection.execute(query.encode(), values or None).rowcount

    def row(self, query: str, *values: Any) -> Row:
        """The one row of a statement."""
        (row,) = self.rows(query, *values)
        return row

    def value(self, query: str, *values: Any) -> Any:
        """The one value of a statement."""
        (value,) = self.row(query, *values).values()
        return value

    def compile(self, flow: Flow) -> None:
        """What the first worker of a flow does."""
        self.value(
            "select pgflow.ensure_flow_compiled(%s, %s, %s)",
            flow.slug,
            Jsonb(flow.shape()),
            Jsonb({"queueIdentity": True}),
        )

    def start(self, flow: Flow | str, run_input: Any = None) -> UUID:
        """Start a run of a compiled flow; returns its id."""
        slug = flow if isinstance(flow, str) else flow.slug
        run_id: UUID = self.row(
            "select * from pgflow.start_flow(%s, %s)", slug, Jsonb({} if run_input is None else run_input)
        )["run_id"]
        return run_id

    def run(self, run_id: UUID) -> Row:
        """The row of a run."""
        return self.row("select * from pgflow.runs where run_id = %s", run_id)

    def step(self, run_id: UUID, step: str) -> Row:
        """The row of a step state."""
        return self.row("select * from pgflow.step_states where run_id = %s and step_slug = %s", run_id, step)

    def task(self, run_id: UUID, step: str, index: int = 0) -> Row:
        """The row of a task."""
        return self.row(
            "select * from pgflow.step_tasks where run_id = %s and step_slug = %s and task_index = %s",
            run_id,
            step,
            index,
        )

    def worker_row(self, worker: Worker) -> Row:
        """The row of a worker."""
        return self.row("select * from pgflow.workers where worker_id = %s", worker.worker_id)

    def worker(self, flow: Flow, name: str | None = None, **settings: Any) -> Worker:
        """A worker that leaves when there is nothing to do, unless told otherwise."""
        chosen = {"max_poll": 1, "poll_interval": 10, "until_idle": 0.01} | settings
        return Worker(self.dsn, flow, name=name, settings=Settings(**chosen), log=self.log)

    def work_off(self, flow: Flow, **settings: Any) -> Summary:
        """Run a worker until there is nothing to do."""
        return self.worker(flow, **settings).run()

    @contextmanager
    def running(self, flow: Flow, **settings: Any) -> Iterator[Running]:
        """A worker in a thread, that stays when there is nothing to do."""
        running = Running(self.worker(flow, **({"until_idle": None} | settings)))
        try:
            yield running
        finally:
            running.worker.stop()
            running._thread.join(PATIENCE)

    def backends(self) -> list[int]:
        """The server processes of everybody else in this database."""
        rows = self.rows(
            "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
            " and backend_type = 'client backend'"
        )
        return [row["pid"] for row in rows]

    def terminate_others(self) -> int:
        """Cut everybody else's connection; returns how many there were."""
        return sum(self.value("select pg_terminate_backend(%s)", pid) for pid in self.backends())


@pytest.fixture
def log() -> logging.Logger:
    """The workers' logger."""
    return logging.getLogger("tests.worker")


@pytest.fixture
def bench_at(database_at: Callable[[str], str], log: logging.Logger) -> Iterator[Callable[[str], Bench]]:
    """Benches on databases of any revision."""
    opened: list[psycopg.Connection[Row]] = []

    def make(revision: str) -> Bench:
        dsn = database_at(revision)
        opened.append(psycopg.connect(dsn, autocommit=True, row_factory=dict_row))
        return Bench(dsn, opened[-1], log)

    yield make
    for connection in opened:
        connection.close()


@pytest.fixture
def bench(bench_at: Callable[[str], Bench]) -> Bench:
    """A bench on a database at the newest revision."""
    return bench_at(HEAD)


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture, log: logging.Logger) -> Callable[[int], list[str]]:
    """``logged(logging.WARNING)``: what was logged at a level."""
    caplog.set_level(logging.DEBUG, log.name)

    def at(level: int) -> list[str]:
        return [r.getMessage() for r in caplog.records if r.name == log.name and r.levelno == level]

    return at
