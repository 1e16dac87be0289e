"""Eight sessions that write to a 0.16.0 database all the time, each in its own way.

Among themselves they never stand in a circle: what they lock in odd orders are tables, in modes that get
along with one another, and rows of their own. So every deadlock is the upgrade's.
"""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from typing import Any, ClassVar

import psycopg
from psycopg.rows import tuple_row
from tests.traffic.calls import prune_helper

Connection = psycopg.Connection[tuple[Any, ...]]

DOOMED = "Doomed"
STALE = "1.5 s"
OLD = "0.3 s"

ARRANGE = f"""
select pgflow.create_flow('Orders', base_delay => 0);
select pgflow.add_step('Orders', 'fetch');
select pgflow.add_step('Orders', 'each', '{{fetch}}', step_type => 'map');
select pgflow.add_step('Orders', 'ship', '{{each}}');
select pgflow.create_flow('billing', base_delay => 0, max_attempts => 2);
select pgflow.add_step('billing', 'bill');
select pgflow.add_step('billing', 'remind', '{{bill}}', when_exhausted => 'skip');
select pgmq.create('unrelated');
insert into pgflow.workers (worker_id, queue_name, function_name)
  select lpad(n::text, 32, '0')::uuid, 'all', 'traffic' from generate_series(1, 2) as n;
{prune_helper()}
"""


class Books:
    """What has happened, by kind of writer."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.acts: Counter[str] = Counter()
        self.errors: Counter[tuple[str, str]] = Counter()
        self.samples: dict[tuple[str, str], str] = {}
        self.crashes: list[str] = []


class Writer:
    """A thread with a session of its own."""

    allowed: ClassVar[set[str]] = set()
    """SQLSTATEs that it meets without any upgrade."""
    pause: ClassVar[float] = 0.01
    """Seconds between two rounds, on average."""
    documented: ClassVar[set[str]] = set()
    """SQLSTATEs that it meets because of one, as documented."""

    def __init__(self, number: int, dsn: str, seed: int, books: Books, deadlock_timeout: str) -> None:
        self.name = f"{type(self).__name__} {number}"
        self.number = number
        self.books = books
        self.rng = random.Random(f"{seed} {self.name}")  # noqa: S311 - not for secrets
        self.stop = threading.Event()
        self._options = (
            f"-c deadlock_timeout={deadlock_timeout} -c statement_timeout=60s -c client_min_messages=error"
        )
        self._dsn = dsn
        self._thread = threading.Thread(target=self._live, name=self.name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def join(self) -> None:
        """Wait for the end."""
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.name} does not end"

    def act(self) -> None:
        """One round of work, in however many transactions."""
        raise NotImplementedError

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of a statement."""
        cursor = self.session.cursor(row_factory=tuple_row).execute(query.encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def _live(self) -> None:
        try:
            with psycopg.connect(self._dsn, autocommit=True, options=self._options) as self.session:
                self.session.prepare_threshold = None
                while not self.stop.is_set():
                    try:
                        self.act()
                    except psycopg.Error as error:
                        if error.sqlstate is None:
                            raise
                        self._note(error)
                    with self.books.lock:
                        self.books.acts[self.name] += 1
                    self.stop.wait(self.rng.uniform(0, 2 * self.pause))
        except Exception as error:
            with self.books.lock:
                self.books.crashes.append(f"{self.name}: {type(error).__name__} {error}")

    def _note(self, error: psycopg.Error) -> None:
        key = (type(self).__name__, error.sqlstate or "")
        with self.books.lock:
            self.books.errors[key] += 1
            self.books.samples.setdefault(key, str(error))


class Producer(Writer):
    """Starts runs."""

    def act(self) -> None:
        flow = self.rng.choice(["Orders", "billing"])
        if self.rng.random() < 0.5:
            self.rows("select * from pgflow.start_flow(%s, '{}')", flow)
        else:
            self.rows("select pgflow.start_flow_with_states(%s, '{}')", flow)


class Worker(Writer):
    """Reads, claims and calls back, as workers of 0.16.0 do; now and then it dies with its task."""

    documented: ClassVar[set[str]] = {"42804"}

    def act(self) -> None:
        flow = self.rng.choice(["Orders", "billing"])
        ids = [row[0] for row in self.rows("select msg_id from pgmq.read(%s, 1, 5)", flow)]
        if not ids:
            return
        tasks = self.rows(
            "select run_id, step_slug, task_index from pgflow.start_tasks(%s, %s::bigint[], %s)",
            flow,
            ids,
            f"{self.number:032}",
        )
        for task in tasks:
            dice = self.rng.random()
            try:
                if dice < 0.1:
                    continue
                if dice < 0.25:
                    self.rows("select * from pgflow.fail_task(%s, %s, %s, 'it broke')", *task)
                else:
                    output = [1, 2] if task[1] == "fetch" else {"ok": True}
                    self.rows("select * from pgflow.complete_task(%s, %s, %s, %s)", *task, json.dumps(output))
            except psycopg.Error as error:
                self._note(error)


class Recovery(Writer):
    """Lets tasks that have lost their worker grow old, and does what the cron jobs do."""

    def act(self) -> None:
        self.rows(
            f"""
            update pgflow.step_tasks set
              queued_at = queued_at - interval '1 h', started_at = started_at - interval '1 h'
            where ctid = any (array(
              select ctid from pgflow.step_tasks
              where status = 'started' and requeued_count < 3
                and started_at between clock_timestamp() - interval '30 min'
                  and clock_timestamp() - interval '{STALE}'
              for update skip locked))
            """
        )
        self.rows("select pgflow.requeue_stalled_tasks()")
        self.rows("select pgflow.ensure_workers()")
        self.stop.wait(0.05)


class Deployer(Writer):
    """Compiles a flow, starts runs, reads definitions, deletes it; again and again."""

    documented: ClassVar[set[str]] = {"42883"}

    def act(self) -> None:
        steps: list[dict[str, Any]] = [
            {
                "slug": slug,
                "stepType": "single",
                "dependencies": [],
                "whenUnmet": "skip",
                "whenExhausted": "fail",
                "requiredInputPattern": {"defined": False},
                "forbiddenInputPattern": {"defined": False},
            }
            for slug in ("first", "second")
        ]
        self.rows("select pgflow.ensure_flow_compiled(%s, %s)", DOOMED, json.dumps({"steps": steps}))
        self.rows("select pgflow.create_flow('Orders')")
        self.rows("select pgflow.start_flow(%s, '{}')", DOOMED)
        self.rows("select pgflow.delete_flow_and_data(%s)", DOOMED)
        self.stop.wait(0.05)


class Pruner(Writer):
    """Lets runs that are over grow old, and prunes them."""

    allowed: ClassVar[set[str]] = {"42P01"}  # the queue of the doomed flow goes while it looks

    def act(self) -> None:
        # Runs without a requeued task: nobody calls back late for them.
        self.rows(
            f"""
            update pgflow.runs set started_at = started_at - interval '1 year',
              completed_at = completed_at - interval '1 year', failed_at = failed_at - interval '1 year'
            where run_id = any (array(
              select run_id from pgflow.runs
              where coalesce(completed_at, failed_at) between clock_timestamp() - interval '1 h'
                  and clock_timestamp() - interval '{OLD}'
                and not exists (
                  select from pgflow.step_tasks
                  where step_tasks.run_id = runs.run_id and requeued_count > 0)
              limit 3))
            """
        )
        self.rows("select pgflow.prune_data_older_than('30 days')")
        self.stop.wait(0.05)


class External(Writer):
    """Uses PGMQ past pgflow: other queues, and the flows' queues without leaving anything there."""

    pause = 0.05

    def act(self) -> None:
        queue = self.rng.choice(["Orders", "billing"])
        with self.session.transaction():
            ((sent,),) = self.rows('select pgmq.send(%s, \'{"from": "outside"}\'::jsonb)', queue)
            self.rows("select pgmq.send('unrelated', '{}'::jsonb)")
            self._dawdle()
            self.rows("select count(*) from pgflow.runs")
            self.rows("select pgmq.delete(%s, %s::bigint)", queue, sent)
        self.rows("select pgmq.create('passing')")
        self.rows("select pgmq.drop_queue('passing')")

    def _dawdle(self) -> None:
        self.rows("select pg_sleep(%s)", self.rng.uniform(0, 0.01))


class Odd(External):
    """Transactions that touch any tables in any order, and end either way."""

    def act(self) -> None:
        kinds = [
            self._queue, self._meta, self._runs, self._tasks, self._steps, self._functions, self._start,
            self._flows, self._states, self._deps,
        ]  # fmt: skip
        strays: list[tuple[str, int]] = []
        with self.session.transaction(force_rollback=self.rng.random() < 0.3):
            for kind in self.rng.sample(kinds, self.rng.randint(2, 5)):
                kind(strays)
                if self.rng.random() < 0.3:
                    self._dawdle()
            for queue, sent in strays:
                self.rows("select pgmq.delete(%s, %s::bigint)", queue, sent)

    def _queue(self, strays: list[tuple[str, int]]) -> None:
        queue = self.rng.choice(["Orders", "billing"])
        ((sent,),) = self.rows("select pgmq.send(%s, '{\"odd\": true}'::jsonb)", queue)
        strays.append((queue, sent))

    def _meta(self, strays: list[tuple[str, int]]) -> None:
        self.rows("select pgmq.create(%s)", f"odd_{self.number}")

    def _runs(self, strays: list[tuple[str, int]]) -> None:
        self.rows("select count(*) from pgflow.runs")

    def _tasks(self, strays: list[tuple[str, int]]) -> None:
        self.rows("update pgflow.step_tasks set output = output where false")

    def _steps(self, strays: list[tuple[str, int]]) -> None:
        self.rows("select flow_slug from pgflow.steps for key share")

    def _functions(self, strays: list[tuple[str, int]]) -> None:
        self.rows("select pgflow.track_worker_function(%s)", f"odd_{self.number}")

    def _start(self, strays: list[tuple[str, int]]) -> None:
        self.rows("select pgflow.start_flow('billing', '{}')")

    def _flows(self, strays: list[tuple[str, int]]) -> None:
        self.rows("select flow_slug from pgflow.flows where flow_slug = 'Orders' for key share")

    def _states(self, strays: list[tuple[str, int]]) -> None:
        self.rows("update pgflow.step_states set output = output where false")

    def _deps(self, strays: list[tuple[str, int]]) -> None:
        self.rows("select count(*) from pgflow.deps")


KINDS: list[type[Writer]] = [Producer, Worker, Worker, Recovery, Deployer, Pruner, External, Odd]
