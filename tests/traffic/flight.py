"""Calls that begin while the upgrade holds its locks, and what they end with."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from tests.traffic.calls import CALLS, DEAD, WORKER, Call, prune_helper

from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.upgrade.progress import Event, FileDone, RevisionApplied
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.session import AMONG_WORKERS

Connection = psycopg.Connection[tuple[Any, ...]]

PATIENCE = 30.0
BLOCKED = """
select pg_blocking_pids(%s) && array(
  select pid from pg_stat_activity
  where datname = current_database() and application_name = 'pgflow-migrate'
)
"""
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(\+\d\d(:\d\d)?)?")
RANDOM_ID = re.compile(r"(?!0{8}-0000-4000|f{4}0{4}-0000|[12]{8}-)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class RollBackError(Exception):
    """Raised by us at the end of the upgrade, so that it rolls back."""


@dataclass(frozen=True)
class Ended:
    """What became of a call: its rows as text, without times and random ids, or its error."""

    waited: bool
    rows: tuple[str, ...] | None = None
    error: tuple[str, str] | None = None


@dataclass
class Flight:
    """Sessions with a call each, against one database.

    Args:
        dsn: a database that :func:`arrange` has prepared.
        calls: what the sessions do.
        warm: whether each session has made its call before and rolled it back: its plans are cached.
    """

    dsn: str
    calls: list[Call]
    warm: bool = False
    ended: dict[str, Ended] = field(default_factory=dict)

    def under_upgrade(self, *, commit: bool) -> None:
        """Begin all calls while the fence stands, then let the upgrade commit or fail."""
        futures: dict[str, Future[Any]] = {}
        waited: dict[str, bool] = {}
        with self._sessions() as sessions, ThreadPoolExecutor(len(sessions) or 1) as pool:

            def listen(event: Event) -> None:
                if isinstance(event, FileDone) and event.file == "fence.sql" and not futures:
                    for call, session in sessions:
                        futures[call.name] = pool.submit(run, session, call.sql(call.query))
                    waited.update(self._settle(sessions, futures))
                if isinstance(event, RevisionApplied) and event.revision == HEAD and not commit:
                    raise RollBackError

            with contextlib.suppress(RollBackError):
                upgrade(self.dsn, fence=AMONG_WORKERS, on_progress=listen)
            for name, future in futures.items():
                self.ended[name] = ended(future, waited[name])

    def alone(self, *, upgraded: bool = False) -> None:
        """Make all calls one after another, with no upgrade at the same time."""
        with psycopg.connect(self.dsn, autocommit=True) as session:
            for call in self.calls:
                future: Future[Any] = Future()
                try:
                    future.set_result(run(session, call.sql((upgraded and call.later) or call.query)))
                except psycopg.Error as error:
                    future.set_exception(error)
                session.execute("reset all")
                self.ended[call.name] = ended(future, waited=call.waits)

    @contextlib.contextmanager
    def _sessions(self) -> Iterator[list[tuple[Call, Connection]]]:
        with contextlib.ExitStack() as stack:
            sessions = []
            for call in self.calls:
                session = psycopg.connect(self.dsn, autocommit=True)
                sessions.append((call, stack.enter_context(session)))
            with unused_sequences(self.dsn):
                for call, session in sessions if self.warm else []:
                    warm_up(session, call)
            yield sessions

    def _settle(
        self, sessions: list[tuple[Call, Connection]], futures: dict[str, Future[Any]]
    ) -> dict[str, bool]:
        """Wait until each call has ended or waits for the upgrade; whether it does."""
        waits: dict[str, bool] = {}
        deadline = time.monotonic() + PATIENCE
        with psycopg.connect(self.dsn, autocommit=True) as observer:
            while len(waits) < len(sessions):
                assert time.monotonic() < deadline, f"neither ended nor waiting: {futures.keys() - waits}"
                for call, session in sessions:
                    if futures[call.name].done():
                        waits.setdefault(call.name, False)
                        continue
                    found = observer.execute(BLOCKED, (session.info.backend_pid,)).fetchone()
                    if found == (True,):
                        waits[call.name] = True
        return waits


def arrange(dsn: str, calls: Iterable[Call]) -> None:
    """A flow and a run for each call."""
    with psycopg.connect(dsn) as session:
        session.execute(prune_helper().encode())
        session.execute("select pgmq.create('unrelated')")
        session.execute("select pgflow.track_worker_function('orders_worker', 'http')")
        for worker in WORKER, DEAD:
            session.execute(
                "insert into pgflow.workers (worker_id, queue_name, function_name, last_heartbeat_at)"
                " values (%s, 'any', 'dead', now() - interval '1 hour')",
                (worker,),
            )
        for call in {call.flow: call for call in calls}.values():
            session.execute("select pgflow.create_flow(%s)", (call.flow,))
            session.execute("select pgflow.add_step(%s, 'first')", (call.flow,))
            session.execute("select pgflow.add_step(%s, 'second', '{first}')", (call.flow,))
            session.execute("select pgflow.start_flow(%s, '{}', %s)", (call.flow, call.run))
            if call.claimed:
                session.execute("select pgflow.start_tasks(%s, '{1}', %s)", (call.flow, WORKER))
        for call in calls:
            if call.prepare:
                session.execute(call.sql(call.prepare).encode())


def run(session: Connection, statement: str) -> list[tuple[Any, ...]]:
    """The rows of the last of some statements, as text."""
    cursor = session.cursor(row_factory=tuple_row)
    cursor.execute(statement.encode())
    while cursor.nextset():
        pass
    return cursor.fetchall() if cursor.description else []


@contextlib.contextmanager
def unused_sequences(dsn: str) -> Iterator[None]:
    """At the end all sequences are where they were: that transactions roll back does not set them back."""
    with psycopg.connect(dsn, autocommit=True) as session:
        before = session.execute(
            "select format('%I.%I', schemaname, sequencename), coalesce(last_value, 1),"
            " last_value is not null from pg_sequences where schemaname in ('pgmq', 'net')"
        ).fetchall()
        yield
        session.cursor().executemany("select setval(%s, %s, %s)", before)


def warm_up(session: Connection, call: Call) -> None:
    """Make the call often enough for generic plans; what it changes is rolled back."""
    for _ in range(6):
        with session.transaction(force_rollback=True):
            run(session, call.sql(call.query))


def ended(future: Future[Any], waited: bool) -> Ended:
    """What a call has ended with."""
    try:
        rows = future.result(PATIENCE)
    except psycopg.Error as error:
        return Ended(waited, error=(error.sqlstate or "", error.diag.message_primary or str(error)))
    return Ended(waited, rows=tuple(sorted(masked(str(in_one_order(row))) for row in rows)))


def in_one_order(value: Any) -> Any:
    """With the JSON arrays of objects sorted: no function of 0.16.0 promises an order for them."""
    if isinstance(value, dict):
        return {key: in_one_order(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(in_one_order(item) for item in value)
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return sorted((in_one_order(item) for item in value), key=lambda item: masked(str(item)))
    return value


def blocked_by_upgrade(dsn: str, pid: int, call: Future[Any]) -> None:
    """Return as soon as a session's call waits for the upgrade; fail if it ends."""
    deadline = time.monotonic() + PATIENCE
    with psycopg.connect(dsn, autocommit=True) as observer:
        while observer.execute(BLOCKED, (pid,)).fetchone() != (True,):
            assert not call.done(), f"it did not wait: {call.exception() or call.result()}"
            assert time.monotonic() < deadline, "it waits for nothing"


def masked(text: str) -> str:
    """Without what differs from one time to the next."""
    text = re.sub(r"datetime\.datetime\(.*?utc\)", "time", text)
    return TIME.sub("time", RANDOM_ID.sub("id", re.sub(r"UUID\('(.*?)'\)", r"\1", text)))


def rows_of(dsn: str) -> dict[str, list[str]]:
    """For the flow of each call every row that bears its name, and for "" all others.

    From all tables of pgflow and PGMQ and from the events, without times and random ids.
    """
    slugs = {call.flow.lower(): call.flow for call in CALLS}
    found: dict[str, list[str]] = {flow: [] for flow in ("", *slugs.values())}
    with psycopg.connect(dsn, autocommit=True) as session:
        tables = session.execute(
            "select format('%I.%I', n.nspname, c.relname) from pg_class c"
            " join pg_namespace n on n.oid = c.relnamespace"
            " where n.nspname in ('pgflow', 'pgmq', 'realtime') and c.relkind = 'r' order by 1"
        ).fetchall()
        # Ids of events differ with the order of the calls, and so they are left out.
        query = " union all ".join(
            f"select '{table}', (to_jsonb(t) - '{'id' if table == 'realtime.messages' else ''}')::text,"
            f" coalesce(to_jsonb(t) ->> 'flow_slug', to_jsonb(t) ->> 'queue_name',"
            f" (select flow_slug from pgflow.runs where 'pgflow:run:' || run_id = to_jsonb(t) ->> 'topic'),"
            f" substr('{table}', 8))"
            f" from {table} t"
            for (table,) in tables
        )
        for table, row, owner in session.execute(query.encode()):
            flow = slugs.get(owner.lower()) or slugs.get(owner.lower().removesuffix("new"), "")
            found[flow].append(f"{table} {masked(row)}")
    return {flow: sorted(rows) for flow, rows in found.items()}
