"""A thousand runs, two workers, two processors, and somebody who kills their connections all the time."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.dirty_runs.protocol import Session

from pgflow_migrate.dirty_runs import client
from pgflow_migrate.dirty_runs.executor import Executor
from pgflow_migrate.dirty_runs.outcomes import Accepted, Answer, Claimed, NotClaimed, Outcome, Unconfirmed

RUNS = 1_000
PATIENCE = 150.0
T = TypeVar("T")

POISON = """
create function public.poison() returns trigger language plpgsql as $$
begin
  if new.run_id = %L and new.step_slug = 'b' then
    raise exception 'poisoned';
  end if;
  return new;
end;
$$;
create trigger poison before insert on pgflow.step_tasks for each row execute function public.poison();
"""


class Lost:
    """A connection that somebody may cut at any time; it is opened anew, and the call made again."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: psycopg.Connection[Any] | None = None
        self.cut = 0

    def call(self, work: Callable[[psycopg.Connection[Any]], T]) -> T:
        while True:
            try:
                if self._connection is None:
                    self._connection = psycopg.connect(
                        self._dsn, autocommit=True, application_name="stress", prepare_threshold=None
                    )
                return work(self._connection)
            except psycopg.OperationalError:
                self.cut += 1
                self.close()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def claiming(
    reservation: client.Reservation, worker_id: UUID
) -> Callable[[psycopg.Connection[Any]], Claimed | NotClaimed]:
    """A claim with one token: when the answer was lost, the claim is found, not made again."""
    token = uuid4()
    return lambda session: client.claim(session, reservation, worker_id, token)


class Stage:
    """What the threads share."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.done = threading.Event()
        self.lock = threading.Lock()
        self.handled: Counter[UUID] = Counter()
        self.dropped: list[Claimed] = []
        self.forgotten: set[tuple[UUID, str]] = set()
        self.outcomes: Counter[str] = Counter()
        self.cut = 0

    def worker(self, seed: int) -> None:
        """Reserve, claim, handle, report; one in fifty times it forgets a claim, as if it had died."""
        chance = random.Random(seed)  # noqa: S311
        connection = Lost(self.dsn)
        reports = Lost(self.dsn)
        worker_id = uuid4()

        def send(token: UUID, outcome: Outcome) -> Answer:
            return reports.call(lambda session: client.settle(session, token, outcome))

        def handle(claimed: Claimed) -> object:
            with self.lock:
                self.handled[claimed.token] += 1
            return {"step": claimed.step_slug, "given": claimed.flow_input or claimed.input}

        try:
            while not self.done.is_set():
                reservation = connection.call(lambda session: client.reserve(session, "demo", 2))
                if reservation is None:
                    self.done.wait(0.01)
                    continue
                claimed = connection.call(claiming(reservation, worker_id))
                if isinstance(claimed, NotClaimed):
                    self.count(f"claim {claimed.outcome}")
                    continue
                if chance.random() < 0.02 and self.forget(claimed):
                    continue
                # Reports are repeated by send itself, so that no bound ends them early.
                handlers = {"a": handle, "b": handle}
                done = Executor(None, send, handlers, worker_id).execute(claimed)  # type: ignore[arg-type]
                assert not isinstance(done.answer, Unconfirmed), done.answer
                self.count(f"settle {done.answer}")
        finally:
            self.cut += connection.cut + reports.cut
            connection.close()
            reports.close()

    def forget(self, claimed: Claimed) -> bool:
        """Drop a claim, but of no task two: the second would be its last."""
        task = (claimed.run_id, claimed.step_slug)
        with self.lock:
            if task in self.forgotten:
                return False
            self.forgotten.add(task)
            self.dropped.append(claimed)
            return True

    def processor(self) -> None:
        """One chunk, one transaction, over and over."""
        connection = Lost(self.dsn)
        try:
            while not self.done.is_set():
                row = connection.call(
                    lambda session: session.execute(
                        "select pgflow.reconcile_one_run() ->> 'outcome'"
                    ).fetchone()
                )
                assert row is not None
                self.count(f"chunk {row[0]}")
                if row[0] in ("idle", "busy"):
                    self.done.wait(0.02)
        finally:
            self.cut += connection.cut
            connection.close()

    def recovery(self) -> None:
        """Takes tasks from the dead; what they held is over at once, as no test waits for a lease."""
        session = Session(self.dsn)
        try:
            while not self.done.wait(0.01):
                with self.lock:
                    dropped, self.dropped = self.dropped, []
                for claimed in dropped:
                    session.expire(claimed.token)
                    found = session.recover(claimed.run_id, claimed.step_slug, claimed.token)
                    self.count(f"recover {found['outcome']}")
        finally:
            session.close()

    def killer(self) -> None:
        """Ends the connection of a worker or a processor, again and again."""
        chance = random.Random(7)  # noqa: S311
        session = Session(self.dsn)
        try:
            while not self.done.wait(0.1):
                pids = [
                    row["pid"]
                    for row in session.rows(
                        "select pid from pg_stat_activity where application_name = 'stress'"
                        " and datname = current_database() order by 1"
                    )
                ]
                if pids:
                    session.execute("select pg_terminate_backend(%s)", chance.choice(pids))
                    self.count("kills")
        finally:
            session.close()

    def count(self, what: str) -> None:
        with self.lock:
            self.outcomes[what] += 1


@contextmanager
def performance(stage: Stage) -> Iterator[list[Any]]:
    """All of them at work; at the end none is left, and none has failed."""
    with ThreadPoolExecutor(7) as pool:
        calls = [
            pool.submit(stage.worker, 1),
            pool.submit(stage.worker, 2),
            pool.submit(stage.processor),
            pool.submit(stage.processor),
            pool.submit(stage.recovery),
            pool.submit(stage.killer),
        ]
        try:
            yield calls
        finally:
            stage.done.set()
        for call in calls:
            call.result(PATIENCE)


@pytest.fixture
def runs(demo: Session) -> list[UUID]:
    rows = demo.rows(
        "select (pgflow.start_flow_v2('demo', jsonb_build_object('n', n)) ->> 'run_id')::uuid as run"
        " from generate_series(1, %s) n",
        RUNS,
    )
    return [row["run"] for row in rows]


def test_a_thousand_runs_end_and_none_is_doubled_or_lost(demo: Session, dsn: str, runs: list[UUID]) -> None:
    poisoned, locked = runs[10], runs[20]
    demo.execute(demo.value("select format(%s, %s::uuid)", POISON, poisoned))
    others = [run for run in runs if run not in (poisoned, locked)]
    open_runs = (
        "select count(*) from pgflow.runs r join pgflow.run_work w using (run_id)"
        " where r.run_id <> all (%s) and (r.status <> 'completed' or w.state <> 'clean')"
    )
    holder = Session(dsn)
    stage = Stage(dsn)

    def wait_for(kept: list[UUID], calls: list[Any]) -> None:
        deadline = time.monotonic() + PATIENCE
        while demo.value(open_runs, kept):
            assert time.monotonic() < deadline, stage.outcomes
            assert not any(call.done() for call in calls), [call.exception() for call in calls if call.done()]
            stage.done.wait(0.05)

    with performance(stage) as calls:
        with holder.connection.transaction():
            # Processors and workers meet it all the time.
            holder.execute("select from pgflow.runs where run_id = %s for update", locked)
            wait_for([poisoned, locked], calls)
            assert demo.run(locked)["status"] == "started"
        wait_for([poisoned], calls)
    holder.close()

    assert demo.value("select count(*) from pgflow.runs where status = 'completed'") == RUNS - 1
    wrong = """
        with given as (
          select r.run_id, r.output, w.requested_generation, w.processed_generation,
            jsonb_build_object('step', 'a', 'given', r.input) as of_a,
            (select count(*) from pgflow.step_tasks t
             where t.run_id = r.run_id and t.status = 'completed') as tasks,
            (select count(*) from pgflow.task_claims c
             where c.run_id = r.run_id and c.state = 'settled') as claims,
            (select count(*) from pgmq.a_demo m where m.message ->> 'run_id' = r.run_id::text) as messages
          from pgflow.runs r
          join pgflow.run_work w using (run_id)
        )
        select run_id
        from given
        where run_id <> %s
          and (output, requested_generation, processed_generation, tasks, claims, messages) is distinct from (
            jsonb_build_object('b', jsonb_build_object('step', 'b', 'given', jsonb_build_object('a', of_a))),
            2, 2, 2, 2, 2
          )
    """
    demo.execute("create index on pgmq.a_demo ((message ->> 'run_id'))")
    assert demo.rows(wrong, poisoned) == []
    assert demo.messages() == []
    assert demo.value("select count(*) from pgmq.a_demo") == 2 * RUNS - 1

    # A handler has run once a claim that was reported, and never for a claim that was forgotten.
    settled = {
        row["claim_id"]
        for row in demo.rows("select claim_id from pgflow.task_claims where state = 'settled'")
    }
    assert set(stage.handled) == settled
    assert set(stage.handled.values()) == {1}

    # The poisoned run stands still with its error, and its message is not lost: it was never sent.
    work = demo.work(poisoned)
    assert work["state"] in ("retry_wait", "attention")
    assert (work["last_error_sqlstate"], work["last_error"]) == ("P0001", "poisoned")
    assert (work["requested_generation"], work["processed_generation"]) == (1, 0)
    assert demo.run(poisoned)["status"] == "started"
    assert demo.state(poisoned, "b")["status"] == "created"

    assert stage.outcomes["claim busy"] >= 1
    assert stage.outcomes["kills"] >= 20
    assert stage.cut >= 10
    assert stage.outcomes["recover recovered"] >= 5
    assert stage.outcomes[f"settle {Accepted('completed', replayed=False)}"] >= RUNS
    assert not [what for what in stage.outcomes if what.startswith("settle") and "Accepted" not in what]
    assert len(others) == RUNS - 2
