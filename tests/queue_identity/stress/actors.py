"""Producers, workers, and those who make their lives hard; each a thread with its own connection."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from tests.queue_identity.stress.flows import BY_SLUG, CURSED, DOOMED, FLOWS, SIDE, Flow, output

Connection = psycopg.Connection[dict[str, Any]]
Key = tuple[UUID, str, int]

CAPABLE = Jsonb({"queueIdentity": True})
STALE = "1 s"
"""A task that is started for longer has lost its worker."""


@dataclass
class Books:
    """What the workers know: what they were handed, what they answered, and what they cannot know."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    handed: Counter[Key] = field(default_factory=Counter)
    # Claims whose answer was lost: each message may or may not have been claimed.
    lost: Counter[tuple[str, int]] = field(default_factory=Counter)
    outputs: dict[Key, list[Any]] = field(default_factory=lambda: defaultdict(list))
    failures: Counter[Key] = field(default_factory=Counter)
    late: list[tuple[Key, Any]] = field(default_factory=list)
    strays: list[tuple[str, int]] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    pids: dict[str, int] = field(default_factory=dict)

    def note(self, fault: str) -> None:
        """Count a fault that was made or met."""
        with self.lock:
            self.faults[fault] += 1


class Actor:
    """A thread with a connection that may be cut at any moment."""

    def __init__(self, name: str, dsn: str, seed: int, books: Books) -> None:
        self.name = name
        self.books = books
        self.rng = random.Random(f"{seed} {name}")  # noqa: S311 - not for secrets
        self.stop = threading.Event()
        self._dsn = dsn
        self._connection: Connection | None = None
        self._thread = threading.Thread(target=self._live, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join(30)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def act(self) -> bool:
        """One round of work; False when there is no more."""
        raise NotImplementedError

    @property
    def connection(self) -> Connection:
        """The connection, made anew when it was cut."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(
                self._dsn,
                autocommit=True,
                row_factory=dict_row,
                options="-c statement_timeout=20s -c deadlock_timeout=100ms -c client_min_messages=error",
            )
            with self.books.lock:
                self.books.pids[self.name] = self._connection.info.backend_pid
        return self._connection

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """The rows of a statement."""
        return self.connection.execute(query.encode(), values or None).fetchall()

    def insist(self, call: Callable[[], Any]) -> Any:
        """Repeat a call until its answer arrives: it may have been carried out before."""
        while True:
            try:
                return call()
            except psycopg.OperationalError as error:
                self._met(error)

    def tell(self, key: Key, result: Any) -> None:
        """Call back until the answer arrives. Each call may count: another claim may have come in between."""

        def send() -> None:
            if result is None:
                with self.books.lock:
                    self.books.failures[key] += 1
            report(self.connection, key, result)

        self.insist(send)

    def _met(self, error: psycopg.OperationalError) -> None:
        # 57P01: terminated by an administrator. Without a SQLSTATE: the connection was lost otherwise.
        if error.sqlstate not in ("57P01", None):
            raise error
        self.books.note("connection lost")
        if self._connection is not None:
            self._connection.close()

    def _live(self) -> None:
        try:
            while not self.stop.is_set():
                try:
                    if not self.act():
                        break
                except psycopg.OperationalError as error:
                    self._met(error)
        except Exception as error:
            with self.books.lock:
                self.books.errors.append(f"{self.name}: {type(error).__name__} {error}")
        finally:
            if self._connection is not None:
                self._connection.close()


class Producer(Actor):
    """Starts the runs of all flows in any order, each once; sends a stray now and then."""

    def __init__(self, name: str, dsn: str, seed: int, books: Books) -> None:
        super().__init__(name, dsn, seed, books)
        self.todo = [flow for flow in FLOWS for _ in range(flow.runs)]
        self.rng.shuffle(self.todo)

    def act(self) -> bool:
        if not self.todo:
            return False
        flow = self.todo.pop()
        run_id, run_input = UUID(int=self.rng.getrandbits(128)), flow.run_input(self.rng)
        self.insist(lambda: self._begin(flow, run_id, run_input))
        if self.rng.random() < 0.01:
            self._stray(flow)
        return True

    def _begin(self, flow: Flow, run_id: UUID, run_input: Any) -> None:
        try:
            self.rows("select * from pgflow.start_flow(%s, %s, %s)", flow.slug, Jsonb(run_input), run_id)
        except psycopg.errors.UniqueViolation as error:
            if error.diag.constraint_name != "runs_pkey":
                raise
            self.books.note("start had been carried out")

    def _stray(self, flow: Flow) -> None:
        (sent,) = self.rows('select pgmq.send(%s, \'{"hello": "world"}\') as id', flow.slug)
        with self.books.lock:
            self.books.strays.append((flow.slug.lower(), sent["id"]))


class Worker(Actor):
    """Reads, claims, handles and reports; dies, repeats itself and comes late as the dice say."""

    def __init__(self, name: str, dsn: str, seed: int, books: Books) -> None:
        super().__init__(name, dsn, seed, books)
        self.worker_id = UUID(int=self.rng.getrandbits(128))
        self.registered = False
        self._batches = 0

    def act(self) -> bool:
        if not self.registered:
            self.rows(
                "insert into pgflow.workers (worker_id, queue_name, function_name)"
                " values (%s, 'all', 'stress') on conflict do nothing returning 1",
                self.worker_id,
            )
            self.registered = True
        idle = True
        for flow in self.rng.sample([*FLOWS, SIDE], len(FLOWS) + 1):
            try:
                idle = not self._work(flow) and idle
            except psycopg.errors.UndefinedTable:
                # Between two lives of the doomed flow it has no queue.
                if flow.slug != DOOMED:
                    raise
        if idle:
            self.stop.wait(0.02)
        return True

    def _work(self, flow: Flow) -> bool:
        # Hidden for no time, a message is read by others, too.
        messages = self.rows(
            "select msg_id from pgmq.read(%s, %s, %s)",
            flow.slug,
            self.rng.choice([0, 1]),
            self.rng.choice([1, 5, 10]),
        )
        ids = [row["msg_id"] for row in messages]
        if not ids:
            return False
        self._batches += 1
        if self._batches % 50 == 25:  # counted, since dice may miss the few times
            self.books.note("died before its claim")
            return True
        tasks = self._claim(flow, ids)
        if self.rng.random() < 0.01:
            self.books.note("died with its whole batch")
            return True
        for task in tasks:
            self._handle(flow, task)
        self._be_late()
        return True

    def _claim(self, flow: Flow, ids: list[int]) -> list[dict[str, Any]]:
        try:
            (outcome,) = self.rows(
                "select pgflow.claim_tasks(%s, %s, %s::bigint[], %s) as told",
                self.rng.choice([flow.slug, flow.slug.lower()]),
                flow.slug,
                ids,
                self.worker_id,
            )
        except psycopg.OperationalError:
            with self.books.lock:
                self.books.lost.update((flow.slug.lower(), message) for message in ids)
            raise
        told = outcome["told"]
        if told["outcome"] != "claimed":
            if flow.slug != DOOMED:
                raise AssertionError(f"fatal: {told}")
            self.books.note("fatal claim of a deleted flow")
            return []
        tasks: list[dict[str, Any]] = told["tasks"]
        with self.books.lock:
            for task in tasks:
                self.books.handed[_key(task)] += 1
            for kind in ("deferred", "archived", "busy", "foreign"):
                self.books.faults[f"messages {kind}"] += len(told[kind])
        return tasks

    def _handle(self, flow: Flow, task: dict[str, Any]) -> None:
        key = _key(task)
        dice = self.rng.random()
        if dice < 0.02 or CURSED in (task["flow_input"] or {}):
            self.books.note("died at work")
            return
        result = None if flow.fails(task["step_slug"], self.rng) else output(task["step_slug"], self.rng)
        with self.books.lock:
            if result is not None:
                self.books.outputs[key].append(result)
            if dice < 0.04:
                self.books.late.append((key, result))
                self.books.faults["late"] += 1
                return
        self.tell(key, result)
        if dice < 0.07:
            self.books.note("told twice")
            self.tell(key, result)

    def _be_late(self) -> None:
        """Deliver what somebody has held back, most likely too late."""
        with self.books.lock:
            if not self.books.late or self.rng.random() < 0.7:
                return
            key, result = self.books.late.pop(self.rng.randrange(len(self.books.late)))
        self.tell(key, result)


def _key(task: dict[str, Any]) -> Key:
    return UUID(task["run_id"]), task["step_slug"], task["task_index"]


def report(connection: Connection, key: Key, result: Any) -> None:
    """Call back: None is a failure."""
    if result is None:
        connection.execute("select pgflow.fail_task(%s, %s, %s, 'it broke')", key)
    else:
        connection.execute("select pgflow.complete_task(%s, %s, %s, %s)", (*key, Jsonb(result)))


class Recovery(Actor):
    """Lets tasks that have lost their worker grow old, and calls recovery all the time."""

    def act(self) -> bool:
        # Rows that others hold are passed over, lest this statement stand in a circle.
        self.rows(
            f"""
            update pgflow.step_tasks set
              queued_at = queued_at - interval '1 h', started_at = started_at - interval '1 h'
            where ctid = any (array(
              select ctid from pgflow.step_tasks
              where status = 'started' and permanently_stalled_at is null
                and started_at between clock_timestamp() - interval '30 min'
                  and clock_timestamp() - interval '{STALE}'
              for update skip locked))
            returning 1
            """
        )
        self.rows("select pgflow.requeue_stalled_tasks()")
        # Whom recovery has given up, only a callback that is very late can end.
        for task in self.rows(
            "select run_id, step_slug, task_index, flow_slug from pgflow.step_tasks"
            " where status = 'started' and permanently_stalled_at < clock_timestamp() - interval '0.2 s'"
        ):
            key = (task["run_id"], task["step_slug"], task["task_index"])
            result = output(task["step_slug"], self.rng) if self.rng.random() < 0.5 else None
            with self.books.lock:
                self.books.faults["given up"] += 1
                if result is not None:
                    self.books.outputs[key].append(result)
            self.tell(key, result)
        self.stop.wait(0.05)
        return True


class Killer(Actor):
    """Terminates the backend of one of the others every now and then."""

    def act(self) -> bool:
        self.stop.wait(self.rng.uniform(0.2, 0.6))
        with self.books.lock:
            victims = sorted(name for name in self.books.pids if name.startswith(("worker", "producer")))
            victim = self.books.pids[self.rng.choice(victims)] if victims else None
        if victim is not None:
            self.rows("select pg_terminate_backend(%s)", victim)
            self.books.note("terminated")
        return True


class Deleter(Actor):
    """Compiles the doomed flow, starts some runs, and deletes it while they are at work; again and again."""

    def act(self) -> bool:
        self.rows("select pgflow.ensure_flow_compiled(%s, %s, %s)", DOOMED, BY_SLUG[DOOMED].shape, CAPABLE)
        for _ in range(self.rng.randint(1, 10)):
            self.rows("select * from pgflow.start_flow(%s, '{}')", DOOMED)
        self.stop.wait(self.rng.uniform(0, 0.5))
        self.rows("select pgflow.delete_flow_and_data(%s)", DOOMED)
        self.books.note("flow deleted")
        return True


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
