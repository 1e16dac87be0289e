"""What people ask beside the findings: how the queues are, and what the upgrade would do, with its numbers.

It never judges: that is the findings' part, and the upgrade's under its locks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row, tuple_row

from pgflow_migrate.releases import identify
from pgflow_migrate.releases.chain import HEAD, REVISIONS
from pgflow_migrate.upgrade import activity, ledger
from pgflow_migrate.upgrade.activity import Queue
from pgflow_migrate.upgrade.estimate import SECONDS_PER_MILLION

_SECONDS_PER_TASK = SECONDS_PER_MILLION["upgrade"] / 1_000_000

_PROBLEMS = {"absent": "there is no usable queue", "unreadable": "this role may not read it"}

# What a role lacks, or a damaged schema: told on the page, because a finding has told it already.
_UNREADABLE = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedFunction,
    psycopg.errors.WrongObjectType,
)

# Before queue identity a flow's only queue is that of its slug.
_ROUTED: Final = """
select exists (
  select from pg_catalog.pg_attribute
  where attrelid = pg_catalog.to_regclass('pgflow.step_tasks') and attname = 'queue_name' and not attisdropped
)
"""

_FLOWS: Final = {
    False: "select flow_slug, lower(flow_slug) from pgflow.flows",
    True: """
      select f.flow_slug, coalesce(s.queue_name, lower(f.flow_slug))
      from pgflow.flows f
      left join (select distinct flow_slug, queue_name from pgflow.steps) s using (flow_slug)
    """,
}

_TASKS: Final = """
select flow_slug, {queue},
  count(*) filter (where status = 'queued'),
  count(*) filter (where status = 'started'),
  count(*) filter (where status = 'failed')
from pgflow.step_tasks
group by 1, 2
"""

_SIZES: Final = """
select (select count(*) from pgflow.steps) as steps,
  (select count(*) from pgflow.step_tasks) as tasks,
  (select count(*) from pgflow.step_tasks where message_id is not null) as tasks_with_message,
  pg_table_size('pgflow.steps') as steps_bytes,
  pg_table_size('pgflow.step_tasks') as tasks_bytes
"""

# What alembic/sql/core_0_15_1/repair_*.sql set right.
_REPAIRED: Final = """
select count(*) filter (where s.status = 'skipped'), count(*) filter (where s.status <> 'skipped')
from pgflow.step_tasks t
join pgflow.runs r using (run_id)
join pgflow.step_states s using (run_id, step_slug)
where t.status in ('queued', 'started') and (s.status = 'skipped' or r.status = 'failed')
"""


@dataclass(frozen=True)
class QueueHealth:
    """A flow's queue and what waits in it.

    Attributes:
        flow_slug: as stored.
        queue_name: the canonical queue name.
        ready: messages that can be read now; None when they could not be counted.
        hidden: messages that cannot be read yet: claimed, or delayed; None as before.
        oldest: seconds since the oldest message was sent; None in an empty queue, too, and where
            each was sent at an infinite time.
        unread: why the messages could not be counted, or None.
        queued, started, failed: the flow's tasks in these states.
    """

    flow_slug: str
    queue_name: str
    ready: int | None
    hidden: int | None
    oldest: float | None
    unread: str | None
    queued: int
    started: int
    failed: int


@dataclass(frozen=True)
class Step:
    """A part of the upgrade.

    Attributes:
        revision: the revision that it belongs to.
        what: what it does, in half a sentence.
        rows: how many rows it reads or writes; None where it touches none.
        rewritten: bytes of the tables that it writes anew; None where it writes none anew.
    """

    revision: str
    what: str
    rows: int | None = None
    rewritten: int | None = None


@dataclass(frozen=True)
class Outlook:
    """Queues, and what the upgrade would do.

    Attributes:
        release: the release that the catalogue has, or None when none matches.
        revisions: those that would be applied, in order; None when the upgrade would refuse to begin.
        obstacle: why it would, apart from findings; else None.
        steps: what each revision does.
        seconds: roughly how long all of it takes on two cores, locks held; None when nothing is applied.
        queues: of every flow, by slug.
        unread: why numbers are missing, or None.
    """

    release: str | None
    revisions: tuple[str, ...] | None
    obstacle: str | None
    steps: tuple[Step, ...]
    seconds: float | None
    queues: tuple[QueueHealth, ...]
    unread: str | None

    @property
    def rewritten(self) -> int:
        """Bytes that are written anew, so that the disk needs them twice until the commit."""
        return sum(step.rewritten or 0 for step in self.steps)


def look(connection: psycopg.Connection[Any]) -> Outlook:
    """Read the outlook in the caller's transaction, with pg_catalog as its search_path; changes nothing.

    What the role may not read, and what is not there, is left out and told in ``unread``.

    Raises:
        psycopg.Error: the server ended it, or a lock was not to be had.
    """
    found = identify.identify(connection)
    obstacle = _obstacle(connection, found)
    revisions = None if obstacle else _after(found.revision)
    queues: tuple[QueueHealth, ...] = ()
    steps: tuple[Step, ...] = ()
    seconds = None
    unread = None
    try:
        with connection.transaction():
            queues = _queues(connection)
        if revisions:
            with connection.transaction():
                sizes: Any = connection.cursor(row_factory=namedtuple_row).execute(_SIZES).fetchall()[0]
                steps = tuple(
                    itertools.chain.from_iterable(_steps(connection, one, sizes, queues) for one in revisions)
                )
            seconds = sizes.tasks * _SECONDS_PER_TASK if "queue_identity" in revisions else None
    except _UNREADABLE as error:
        unread = error.diag.message_primary or str(error)
    return Outlook(found.release, revisions, obstacle, steps, seconds, queues, unread)


def _after(revision: str | None) -> tuple[str, ...]:
    return REVISIONS[REVISIONS.index(revision) + 1 :] if revision in REVISIONS else ()


def _obstacle(connection: psycopg.Connection[Any], found: identify.Identification) -> str | None:
    """Why the upgrade would not begin, whatever the findings are."""
    if found.empty:
        return "There is no schema pgflow."
    if found.revision is None:
        return identify.unknown_release(found).message
    # An auditor need not be the one who upgrades: what it may not read of the record, the upgrade will.
    versions = () if ledger.missing_grants(connection) else ledger.versions(connection)
    if newer := sorted(set(versions) - set(REVISIONS)):
        return f"A newer pgflow-migrate has upgraded this database to {', '.join(newer)}."
    contradiction = identify.disagreement(connection, versions, found)
    return contradiction.message if contradiction else None


def _queues(connection: psycopg.Connection[Any]) -> tuple[QueueHealth, ...]:
    cursor = connection.cursor(row_factory=tuple_row)
    routed = bool(cursor.execute(_ROUTED).fetchall()[0][0])
    flows = sorted(cursor.execute(_FLOWS[routed].encode()).fetchall())
    queue = sql.SQL("queue_name" if routed else "lower(flow_slug)")
    tasks: dict[tuple[str, str], tuple[int, int, int]] = {
        (flow, name): (queued, started, failed)
        for flow, name, queued, started, failed in cursor.execute(
            sql.SQL(_TASKS).format(queue=queue)
        ).fetchall()
    }
    contents = {queue.queue_name: queue for queue in activity.queues(connection)}
    return tuple(
        _health(flow, contents.get(name) or Queue(name, None, None, None, "absent"), tasks.get((flow, name)))
        for flow, name in flows
    )


def _health(flow: str, queue: Queue, tasks: tuple[int, int, int] | None) -> QueueHealth:
    hidden = None if queue.total is None or queue.visible is None else queue.total - queue.visible
    unread = None if queue.problem is None else _PROBLEMS[queue.problem]
    return QueueHealth(
        flow, queue.queue_name, queue.visible, hidden, queue.oldest_age, unread, *(tasks or (0, 0, 0))
    )


def _steps(
    connection: psycopg.Connection[Any], revision: str, sizes: Any, queues: Sequence[QueueHealth]
) -> Iterator[Step]:
    """What alembic/versions/<revision>.py does, for people."""
    if revision == "core_0_15_1":
        skipped, cancelled = connection.cursor(row_factory=tuple_row).execute(_REPAIRED).fetchall()[0]
        yield Step(revision, "allow two more statuses, replace the functions of a task's life")
        yield Step(revision, "end unfinished tasks of skipped steps as skipped: rows written", skipped)
        yield Step(revision, "end unfinished tasks of failed runs as cancelled: rows written", cancelled)
    elif revision == "core_0_16_0":
        yield Step(revision, "replace ensure_flow_compiled()")
    elif revision == "queue_identity":
        messages = sum((queue.ready or 0) + (queue.hidden or 0) for queue in queues)
        yield Step(
            revision, "lock pgflow's tables, pgmq.meta and the queue of each flow: queues", len(queues)
        )
        yield Step(revision, "audit again under the locks: tasks and messages read", sizes.tasks + messages)
        yield Step(revision, "give steps their queue's name: rows written", sizes.steps, sizes.steps_bytes)
        yield Step(revision, "give tasks their queue's name: rows written", sizes.tasks, sizes.tasks_bytes)
        yield Step(
            revision, "make queue and message id of a task unique: rows indexed", sizes.tasks_with_message
        )
        yield Step(revision, "replace the functions that send, read and archive")
        yield Step(
            revision, "look once more before the commit: tasks and messages read", sizes.tasks + messages
        )
    elif revision == HEAD:
        yield Step(revision, "add the tables, a column and the functions of protocol 2; no row changes")
        yield Step(revision, "validate its constraints: tasks read", sizes.tasks)
        yield Step(revision, "index the queues of steps: rows indexed", sizes.steps)
    else:
        raise ValueError(f"nobody has described what {revision} does")
