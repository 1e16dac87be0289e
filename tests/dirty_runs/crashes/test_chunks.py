"""A processor is killed at every write of every kind of chunk, and between any two of its statements.

Another one, on a connection of its own, goes on.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from uuid import UUID

import psycopg
import pytest
from tests.dirty_runs.crashes import boundaries
from tests.dirty_runs.protocol import Session

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

PATIENCE = 30.0
_numbers = itertools.count(1)

Situation = Callable[[Session], UUID]


def settled(session: Session) -> UUID:
    """A is completed: the next chunk dispatches B."""
    run = session.started()
    session.complete(session.claimed(run, "a"), {"x": 1})
    return run


def dispatched(session: Session) -> UUID:
    """B is dispatched: the next chunk finds the fixed point."""
    run = settled(session)
    assert session.reconcile(run)["outcome"] == "dispatched"
    return run


def finished(session: Session) -> UUID:
    """Both steps are completed: the next chunk finishes the run."""
    run = dispatched(session)
    assert session.reconcile(run)["outcome"] == "clean"
    session.complete(session.claimed(run, "b"), {"y": 2})
    return run


def over(session: Session) -> UUID:
    """The run is completed: the next chunk finds that nothing is left."""
    run = finished(session)
    assert session.reconcile(run)["outcome"] == "finalized"
    return run


CHUNKS: dict[str, Situation] = {
    "dispatched": settled,
    "clean": dispatched,
    "finalized": finished,
    "clean, after the run": over,
}
WRITES = {"dispatched": 6, "clean": 1, "finalized": 3, "clean, after the run": 1}
"""Rows that each chunk writes, events included; each has a stop before and one after it."""
STATEMENTS = {"dispatched": 35, "clean": 26, "finalized": 31, "clean, after the run": 14}
"""Boundaries of statements that each chunk passes, in all its functions."""


def database_with(
    install: Callable[[Session], None], server: Server, templates: Templates
) -> Iterator[Session]:
    name = f"crashes_{next(_numbers)}"
    session = Session(templates.clone("dirty_runs", name))
    session.define()
    install(session)
    yield session
    session.close()
    server.drop_database(name)


@pytest.fixture(scope="module")
def observer(server: Server, templates: Templates) -> Iterator[Session]:
    """A session on a database with stops at every write."""
    yield from database_with(boundaries.install, server, templates)


@pytest.fixture(scope="module")
def between(server: Server, templates: Templates) -> Iterator[Session]:
    """A session on a database with stops between the statements of the functions of a chunk."""
    yield from database_with(boundaries.install_between_statements, server, templates)


def chunk(session: Session, run: UUID) -> str:
    with session.connection.transaction():
        outcome: str = session.reconcile(run)["outcome"]
    return outcome


def wait_for_stop(observer: Session, pid: int, call: Future[str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not observer.value("select cardinality(pg_blocking_pids(%s)) > 0", pid):
        assert not call.done(), f"it never stopped: {call.exception() or call.result()}"
        assert time.monotonic() < deadline


def kill(observer: Session, pid: int) -> None:
    """End a backend, and wait until its locks are gone; the server's own wait takes a tenth of a second."""
    assert observer.value("select pg_terminate_backend(%s)", pid)
    deadline = time.monotonic() + PATIENCE
    while observer.value("select exists (select from pg_locks where pid = %s)", pid):
        assert time.monotonic() < deadline


def to_the_end(observer: Session, run: UUID) -> None:
    """Go on from another connection, and look at what came of the run."""
    observer.settle_down(run)
    if observer.run(run)["status"] == "started":
        observer.complete(observer.claimed(run, "b"), {"y": 2})
        observer.settle_down(run)
    assert observer.run(run)["status"] == "completed"
    assert observer.run(run)["output"] == {"b": {"y": 2}}
    assert observer.run(run)["remaining_steps"] == 0
    tasks = observer.rows(
        "select step_slug, status, message_id from pgflow.step_tasks where run_id = %s order by 1", run
    )
    assert [(task["step_slug"], task["status"]) for task in tasks] == [
        ("a", "completed"),
        ("b", "completed"),
    ]
    sent = (
        "select count(*) from (select message from pgmq.q_demo union all select message from pgmq.a_demo) m"
    )
    assert observer.value(f"{sent} where message ->> 'run_id' = %s", str(run)) == 2
    assert observer.value("select count(*) from pgmq.q_demo") == 0
    work = observer.work(run)
    assert (work["state"], work["requested_generation"], work["processed_generation"]) == ("clean", 2, 2)
    assert observer.value("select count(*) from pgflow.task_claims where run_id = %s", run) == 2


@pytest.mark.parametrize("kind", CHUNKS)
def test_the_writes_of_a_chunk_are_all_counted(observer: Session, kind: str) -> None:
    boundaries.choose(observer, 0)
    run = CHUNKS[kind](observer)
    boundaries.choose(observer, 0)
    assert chunk(observer, run) == kind.partition(",")[0]
    assert boundaries.passed(observer) == 2 * WRITES[kind]
    to_the_end(observer, run)


def kill_at(observer: Session, run: UUID, number: int) -> None:
    """Let a processor of the run come to a stop, kill it, and see that nothing is left of it."""
    before = observer.everything()
    boundaries.choose(observer, number)
    with (
        observer.connection.transaction(),
        ThreadPoolExecutor(1) as pool,
    ):
        observer.execute("select pg_advisory_xact_lock(%s)", boundaries.LOCK)
        processor = Session(observer.dsn)
        call = pool.submit(chunk, processor, run)
        wait_for_stop(observer, processor.pid, call)
        kill(observer, processor.pid)
        with pytest.raises(psycopg.OperationalError):
            call.result(PATIENCE)
        processor.close()
    boundaries.choose(observer, 0)
    assert observer.everything() == before


@pytest.mark.parametrize(
    ("kind", "number"),
    [(kind, number) for kind, writes in WRITES.items() for number in range(1, 2 * writes + 1)],
)
def test_a_processor_that_is_killed_at_a_write_leaves_nothing_and_another_goes_on(
    observer: Session, kind: str, number: int
) -> None:
    boundaries.choose(observer, 0)
    run = CHUNKS[kind](observer)
    kill_at(observer, run, number)
    to_the_end(observer, run)


@pytest.mark.parametrize("kind", CHUNKS)
def test_processors_that_are_killed_between_any_two_statements_leave_nothing_and_another_goes_on(
    between: Session, kind: str
) -> None:
    boundaries.choose(between, 0)
    run = CHUNKS[kind](between)
    boundaries.choose(between, 0)
    assert chunk(between, run) == kind.partition(",")[0]
    assert boundaries.passed(between) == STATEMENTS[kind]
    to_the_end(between, run)

    # All at one run, as each leaves it as it was.
    run = CHUNKS[kind](between)
    for number in range(1, STATEMENTS[kind] + 1):
        kill_at(between, run, number)
    to_the_end(between, run)


@pytest.mark.parametrize("kind", CHUNKS)
def test_a_processor_that_is_killed_before_its_commit_leaves_nothing(observer: Session, kind: str) -> None:
    boundaries.choose(observer, 0)
    run = CHUNKS[kind](observer)
    before = observer.everything()
    processor = Session(observer.dsn)
    processor.execute("begin")
    assert processor.reconcile(run)["outcome"] == kind.partition(",")[0]
    assert observer.everything() == before
    kill(observer, processor.pid)
    with pytest.raises(psycopg.OperationalError):
        processor.execute("commit")
    processor.close()
    assert observer.everything() == before
    to_the_end(observer, run)


@pytest.mark.parametrize("kind", CHUNKS)
def test_a_processor_that_is_gone_after_its_commit_is_not_missed(observer: Session, kind: str) -> None:
    boundaries.choose(observer, 0)
    run = CHUNKS[kind](observer)
    processor = Session(observer.dsn)
    assert chunk(processor, run) == kind.partition(",")[0]
    kill(observer, processor.pid)
    processor.close()
    to_the_end(observer, run)
