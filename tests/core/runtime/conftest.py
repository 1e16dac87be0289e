"""A small vocabulary for the runtime tests: build a flow, move a run along, look at what it left behind."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

Row = dict[str, Any]

BEFORE_HARDENING = ["core_0_15_0"]
# An upgrade goes on from queue_identity to the newest, which has its functions and some of its own: that is
# where they are tested. tests/queue_identity and test_invariants.py look at queue_identity itself.
ROUTED = ["dirty_runs"]
SINCE_HARDENING = ["core_0_15_1", "core_0_16_0", *ROUTED]
RELEASES = BEFORE_HARDENING + SINCE_HARDENING
OLD_CORES = [release for release in RELEASES if release not in ROUTED]
WORKER = UUID("11111111-1111-1111-1111-111111111111")
PATIENCE = 20.0

_numbers = itertools.count(1)


def _json(value: object) -> Jsonb | None:
    """None stays SQL NULL; JSON null is spelt ``Jsonb(None)``."""
    return value if value is None or isinstance(value, Jsonb) else Jsonb(value)


class Core:
    """One session in a database with a pgflow core."""

    def __init__(self, connection: psycopg.Connection[Row], release: str) -> None:
        self.connection = connection
        self.release = release
        self.hardened = release not in BEFORE_HARDENING
        self.routed = release in ("queue_identity", *ROUTED)

    # -- plain SQL -------------------------------------------------------------------------------

    def rows(self, query: str, *values: object) -> list[Row]:
        """All rows of a statement."""
        return self.connection.execute(query.encode(), values or None).fetchall()

    def row(self, query: str, *values: object) -> Row:
        """The one row of a statement."""
        (row,) = self.rows(query, *values)
        return row

    def value(self, query: str, *values: object) -> Any:
        """The one value of a statement."""
        (value,) = self.row(query, *values).values()
        return value

    def execute(self, query: str, *values: object) -> None:
        """A statement whose result does not matter."""
        self.connection.execute(query.encode(), values or None)

    @contextmanager
    def error(self) -> Iterator[pytest.ExceptionInfo[psycopg.Error]]:
        """Expect the body to fail in the database; the transaction stays usable."""
        with pytest.raises(psycopg.Error) as caught, self.connection.transaction():
            yield caught

    @contextmanager
    def notices(self) -> Iterator[list[str]]:
        """What the server tells the client meanwhile: severity, message, detail and hint of each."""
        said: list[str] = []

        def hear(notice: psycopg.errors.Diagnostic) -> None:
            parts = (notice.message_primary, notice.message_detail, notice.message_hint)
            said.append(f"{notice.severity_nonlocalized}: " + " ".join(part for part in parts if part))

        self.connection.add_notice_handler(hear)
        yield said
        self.connection.remove_notice_handler(hear)

    def clock(self) -> datetime:
        """The wall clock of the server."""
        value: datetime = self.value("select clock_timestamp()")
        return value

    # -- definitions -----------------------------------------------------------------------------

    def flow(self, slug: str, **options: object) -> None:
        """Create a flow; base delay 5 s, timeout 60 s and 3 attempts unless told otherwise."""
        self._call("create_flow", flow_slug=slug, **options)

    def step(self, flow: str, slug: str, *parents: str, **options: object) -> None:
        """Add a single step that depends on ``parents``."""
        for pattern in ("required_input_pattern", "forbidden_input_pattern"):
            if pattern in options:
                options[pattern] = _json(options[pattern])
        self._call("add_step", flow_slug=flow, step_slug=slug, deps_slugs=list(parents), **options)

    def map_step(self, flow: str, slug: str, *parents: str, **options: object) -> None:
        """Add a map step."""
        self.step(flow, slug, *parents, step_type="map", **options)

    def _call(self, function: str, **arguments: object) -> None:
        call = sql.SQL("select * from {}({})").format(
            sql.Identifier("pgflow", function),
            sql.SQL(", ").join(
                sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in arguments
            ),
        )
        self.connection.execute(call, arguments)

    # -- a run and its parts ---------------------------------------------------------------------

    def start(self, flow: str, run_input: object) -> UUID:
        """Start a run; returns its id."""
        run_id: UUID = self.row("select * from pgflow.start_flow(%s, %s)", flow, _json(run_input))["run_id"]
        return run_id

    def run(self, run_id: UUID) -> Row:
        """The row of a run."""
        return self.row("select * from pgflow.runs where run_id = %s", run_id)

    def state(self, run_id: UUID, step: str) -> Row:
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

    def states(self, run_id: UUID) -> dict[str, str]:
        """The status of each step of a run."""
        rows = self.rows("select step_slug, status from pgflow.step_states where run_id = %s", run_id)
        return {row["step_slug"]: row["status"] for row in rows}

    def tasks(self, run_id: UUID, step: str | None = None) -> dict[str, str]:
        """The status of each task of a run (of one step), keyed ``step/index``."""
        rows = self.rows(
            "select step_slug, task_index, status from pgflow.step_tasks"
            " where run_id = %s and step_slug = coalesce(%s::text, step_slug)",
            run_id,
            step,
        )
        return {f"{row['step_slug']}/{row['task_index']}": row["status"] for row in rows}

    # -- what a worker does ----------------------------------------------------------------------

    def worker(self, worker_id: UUID = WORKER) -> UUID:
        """Register a worker once."""
        self.execute(
            "insert into pgflow.workers (worker_id, queue_name, function_name)"
            " values (%s, 'any', 'test_worker') on conflict do nothing",
            worker_id,
        )
        return worker_id

    def read(self, queue: str, vt: int = 30, quantity: int = 1000) -> list[int]:
        """Read visible messages; returns their ids, ascending."""
        rows = self.rows(
            "select msg_id from pgmq.read(%s::text, %s::integer, %s::integer)", queue, vt, quantity
        )
        return sorted(row["msg_id"] for row in rows)

    def start_tasks(
        self, flow: str, messages: Sequence[int] | None, worker_id: UUID | None = WORKER
    ) -> list[Row]:
        """Claim the tasks of some messages; the records by step and index."""
        if worker_id == WORKER:
            self.worker()
        return self.rows(
            "select * from pgflow.start_tasks(%s, %s::bigint[], %s::uuid)"
            " order by run_id, step_slug, task_index",
            flow,
            messages if messages is None else list(messages),
            worker_id,
        )

    def claim_tasks(
        self,
        queue: str | None,
        flow: str | None,
        messages: Sequence[int | None] | None,
        worker_id: UUID | None = WORKER,
    ) -> Row:
        """Claim the tasks behind some messages of a queue; the whole outcome."""
        if worker_id == WORKER:
            self.worker()
        outcome: Row = self.value(
            "select pgflow.claim_tasks(%s, %s, %s::bigint[], %s::uuid)",
            queue,
            flow,
            messages if messages is None else list(messages),
            worker_id,
        )
        return outcome

    def claim(self, run_id: UUID, step: str, index: int = 0) -> list[Row]:
        """Claim one task by its message, read or not."""
        task = self.task(run_id, step, index)
        return self.start_tasks(task["flow_slug"], [task["message_id"]])

    def complete(self, run_id: UUID, step: str, output: object, index: int = 0) -> list[Row]:
        """Report a success."""
        return self.rows(
            "select * from pgflow.complete_task(%s, %s, %s, %s)", run_id, step, index, _json(output)
        )

    def fail(self, run_id: UUID, step: str, error: str = "it broke", index: int = 0) -> list[Row]:
        """Report a failure."""
        return self.rows("select * from pgflow.fail_task(%s, %s, %s, %s)", run_id, step, index, error)

    def do(self, run_id: UUID, step: str, output: object, index: int = 0) -> None:
        """Claim one task and complete it."""
        assert len(self.claim(run_id, step, index)) == 1
        self.complete(run_id, step, output, index)

    def break_(self, run_id: UUID, step: str, error: str = "it broke", index: int = 0) -> None:
        """Claim one task and fail it."""
        assert len(self.claim(run_id, step, index)) == 1
        self.fail(run_id, step, error, index)

    def requeue(self) -> int:
        """Look for stalled tasks; returns how many were requeued."""
        count: int = self.value("select pgflow.requeue_stalled_tasks()")
        return count

    def age(self, run_id: UUID, step: str, seconds: float, index: int = 0) -> None:
        """Let a started task have been started ``seconds`` before the transaction's now."""
        self.execute(
            "update pgflow.step_tasks set started_at = now() - make_interval(secs => %s),"
            " queued_at = now() - make_interval(secs => %s + 60)"
            " where run_id = %s and step_slug = %s and task_index = %s",
            seconds,
            seconds,
            run_id,
            step,
            index,
        )

    # -- traces ----------------------------------------------------------------------------------

    def sent(self, run_id: UUID) -> list[Row]:
        """The realtime messages of a run, oldest first."""
        return self.rows(
            "select * from realtime.messages where topic = 'pgflow:run:' || %s::text order by id", run_id
        )

    def events(self, run_id: UUID) -> list[str]:
        """The names of a run's events, oldest first."""
        return [message["event"] for message in self.sent(run_id)]

    def queued(self, queue: str) -> list[int]:
        """The ids in a queue, visible or not, ascending."""
        return self._ids("q_", queue)

    def archived(self, queue: str) -> list[int]:
        """The ids in a queue's archive, ascending."""
        return self._ids("a_", queue)

    def send(self, queue: str, body: object) -> int:
        """Put a message into a queue behind pgflow's back; returns its id."""
        message: int = self.value("select pgmq.send(%s::text, %s::jsonb)", queue, _json(body))
        return message

    def visible(self, queue: str) -> list[int]:
        """The ids in a queue that a read would give, ascending."""
        query = sql.SQL("select msg_id from {} where vt <= clock_timestamp() order by 1").format(
            _table("q_", queue)
        )
        return [row["msg_id"] for row in self.connection.execute(query).fetchall()]

    def messages(self, run_id: UUID, *steps: str) -> list[int]:
        """The message ids of the tasks of some steps, ascending."""
        rows = self.rows(
            "select message_id from pgflow.step_tasks where run_id = %s and step_slug = any (%s) order by 1",
            run_id,
            list(steps),
        )
        return [row["message_id"] for row in rows]

    def message(self, run_id: UUID, step: str, index: int = 0) -> Row:
        """A task's message in the queue."""
        task = self.task(run_id, step, index)
        queue = task["queue_name"] if self.routed else task["flow_slug"]
        query = sql.SQL("select * from {} where msg_id = %s").format(_table("q_", queue))
        (row,) = self.connection.execute(query, (task["message_id"],)).fetchall()
        return row

    def show(self, queue: str) -> None:
        """Make every message of a queue visible."""
        self.connection.execute(sql.SQL("update {} set vt = clock_timestamp()").format(_table("q_", queue)))

    def hide(self, queue: str) -> None:
        """Make every message of a queue invisible for an hour."""
        self.connection.execute(
            sql.SQL("update {} set vt = clock_timestamp() + interval '1 hour'").format(_table("q_", queue))
        )

    def lose(self, queue: str, *messages: int) -> None:
        """Take messages out of a queue behind pgflow's back."""
        self.connection.execute(
            sql.SQL("delete from {} where msg_id = any (%s)").format(_table("q_", queue)), (list(messages),)
        )

    @contextmanager
    def visible_in(self, run_id: UUID, step: str, seconds: float, index: int = 0) -> Iterator[None]:
        """The body sets the task's message visible at clock + ``seconds``."""
        before = self.clock()
        yield
        moment = self.message(run_id, step, index)["vt"] - timedelta(seconds=seconds)
        assert before <= moment <= self.clock()

    def everything(self, *queues: str) -> dict[str, list[Row]]:
        """Every row of the runtime tables, of the events and of some queues."""
        tables = [
            sql.Identifier("pgflow", "runs"),
            sql.Identifier("pgflow", "step_states"),
            sql.Identifier("pgflow", "step_tasks"),
            sql.Identifier("realtime", "messages"),
        ]
        for queue in queues:
            tables += [_table("q_", queue), _table("a_", queue)]
        return {
            table.as_string(self.connection): self.connection.execute(
                sql.SQL("select to_jsonb(t) as row from {} as t order by 1").format(table)
            ).fetchall()
            for table in tables
        }

    def _ids(self, prefix: str, queue: str) -> list[int]:
        query = sql.SQL("select msg_id from {} order by 1").format(_table(prefix, queue))
        return [row["msg_id"] for row in self.connection.execute(query).fetchall()]

    # -- two sessions ----------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The process id of the session's backend."""
        return self.connection.info.backend_pid

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Hold the locks of the body until it ends."""
        with self.connection.transaction():
            yield

    def in_background(self, call: Callable[[], Any]) -> Future[Any]:
        """Run a call of this session in a thread of its own."""
        future: Future[Any] = Future()

        def work() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future

    def wait_until_blocked(self, other: Core, call: Future[Any]) -> None:
        """Return as soon as ``other``'s call waits for a lock that this session holds."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            assert not call.done(), f"the call did not wait: {call.exception() or call.result()}"
            if self.pid in self.value("select pg_blocking_pids(%s)", other.pid):
                return
            threading.Event().wait(0.005)
        raise AssertionError("the call never waited for a lock")


def _table(prefix: str, queue: str) -> sql.Identifier:
    return sql.Identifier("pgmq", prefix + queue.lower())


@pytest.fixture(scope="module")
def module_session(server: Server, templates: Templates) -> Iterator[Callable[[str], Core]]:
    """A database and a session a release for all the tests of a module; they roll back what they do.

    One session, because a new backend would plan every function anew.
    """
    made: dict[str, Core] = {}

    def make(release: str) -> Core:
        if release not in made:
            dsn = templates.clone(release, f"runtime_{next(_numbers)}")
            connection: psycopg.Connection[Row] = psycopg.connect(dsn, row_factory=dict_row)
            made[release] = Core(connection, release)
        return made[release]

    yield make
    for session in made.values():
        name = session.connection.info.dbname
        session.connection.close()
        server.drop_database(name)


@contextmanager
def _rolled_back(session: Core) -> Iterator[Core]:
    yield session
    session.connection.rollback()


@pytest.fixture(params=RELEASES)
def core(request: pytest.FixtureRequest, module_session: Callable[[str], Core]) -> Iterator[Core]:
    """A session at each of the releases, in one transaction that is rolled back."""
    with _rolled_back(module_session(request.param)) as session:
        yield session


@pytest.fixture(params=SINCE_HARDENING)
def hardened(request: pytest.FixtureRequest, module_session: Callable[[str], Core]) -> Iterator[Core]:
    """The same at all but 0.15.0."""
    with _rolled_back(module_session(request.param)) as session:
        yield session


@pytest.fixture(params=OLD_CORES)
def old_core(request: pytest.FixtureRequest, module_session: Callable[[str], Core]) -> Iterator[Core]:
    """The same up to 0.16.0: for what queue identity puts right."""
    with _rolled_back(module_session(request.param)) as session:
        yield session


@pytest.fixture
def unhardened(module_session: Callable[[str], Core]) -> Iterator[Core]:
    """The same at 0.15.0 only."""
    with _rolled_back(module_session("core_0_15_0")) as session:
        yield session


@pytest.fixture(params=ROUTED)
def routed(request: pytest.FixtureRequest, module_session: Callable[[str], Core]) -> Iterator[Core]:
    """The same since queue identity."""
    with _rolled_back(module_session(request.param)) as session:
        yield session


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """Each of the releases, for tests that open sessions of their own."""
    name: str = request.param
    return name


@pytest.fixture(params=SINCE_HARDENING)
def hardened_release(request: pytest.FixtureRequest) -> str:
    """Each of the releases but 0.15.0."""
    name: str = request.param
    return name


@pytest.fixture(params=[release for release in SINCE_HARDENING if release not in ROUTED])
def waiting_release(request: pytest.FixtureRequest) -> str:
    """Those of them whose claims wait for locks."""
    name: str = request.param
    return name


Sessions = Callable[[str, int], list[Core]]


@pytest.fixture
def sessions(database_at: Callable[[str], str]) -> Iterator[Sessions]:
    """Open several committing sessions in a database of the test's own."""
    opened: list[psycopg.Connection[Row]] = []

    def open_(release: str, count: int) -> list[Core]:
        dsn = database_at(release)
        for _ in range(count):
            opened.append(
                psycopg.connect(
                    dsn,
                    autocommit=True,
                    row_factory=dict_row,
                    options=f"-c statement_timeout={PATIENCE:.0f}s",
                )
            )
        return [Core(connection, release) for connection in opened[-count:]]

    yield open_
    for connection in opened:
        connection.close()
