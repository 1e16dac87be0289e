"""What goes on in a database: workers, queues, another upgrade, and the time limits that hold. Read-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from pgflow_migrate.errors import LiveWorker

Connection = psycopg.Connection[Any]

_TIMEOUTS: Final = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
_TIMEOUTS_17: Final = "transaction_timeout"

_UPGRADES: Final = """
select l.pid
from pg_catalog.pg_locks l
where l.granted and l.locktype = 'advisory' and l.objsubid = 1 and l.pid <> pg_catalog.pg_backend_pid()
  and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
  and (l.classid::bigint << 32 | l.objid::bigint) = pg_catalog.hashtextextended('pgflow-migrate', 0)
"""

# The rule by which the upgrade refuses: alembic/sql/queue_identity/live_workers.sql. The time as text,
# because psycopg cannot read every DateStyle that a server may have.
_WORKERS: Final = """
select w.worker_id::text, w.function_name, w.queue_name, coalesce(f.start_mode, 'unknown'),
  case when isfinite(w.last_heartbeat_at)
    then to_char(w.last_heartbeat_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US+00:00')
    else w.last_heartbeat_at::text end,
  case when isfinite(w.last_heartbeat_at)
    then extract(epoch from clock_timestamp() - w.last_heartbeat_at)::float8 end
from pgflow.workers w
left join pgflow.worker_functions f on f.function_name = w.function_name
where w.stopped_at is null
  and w.last_heartbeat_at
    > clock_timestamp() - greatest(coalesce(f.debounce, interval '6 seconds'), interval '30 seconds')
order by w.function_name collate "C", w.worker_id
"""

_MISSING: Final = """
select pg_catalog.format('grant usage on schema pgflow to %%I;', current_user)
from pg_catalog.pg_namespace n
where n.nspname = 'pgflow' and not pg_catalog.has_schema_privilege(n.oid, 'usage')
union all
select pg_catalog.format('grant select on pgflow.%%I to %%I;', c.relname, current_user)
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'pgflow' and c.relname = any (%s) and not pg_catalog.has_table_privilege(c.oid, 'select')
order by 1 desc
"""

_ROUTED: Final = """
select exists (
  select from pg_catalog.pg_attribute a
  join pg_catalog.pg_class c on c.oid = a.attrelid
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'pgflow' and c.relname = 'steps' and a.attname = 'queue_name' and not a.attisdropped
)
"""
# A flow's default queue is that of its slug; since queue identity steps may have others.
_DEFAULT_QUEUES: Final = "select lower(flow_slug) from pgflow.flows"
_STEP_QUEUES: Final = "union select lower(queue_name) from pgflow.steps"

_TABLES: Final = """
select w.name, case
    when c.oid is null or c.relkind not in ('r', 'p') or 3 > (
      select count(*) from pg_catalog.pg_attribute a
      where a.attrelid = c.oid and a.attname in ('msg_id', 'vt', 'enqueued_at') and not a.attisdropped
    ) then 'absent'
    when not (has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')) then 'unreadable'
    else 'readable'
  end
from unnest(%s::text[]) as w (name)
left join pg_catalog.pg_namespace n on n.nspname = 'pgmq'
left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = 'q_' || w.name
order by w.name collate "C"
"""

_DEPTH: Final = """
select {name}, count(*) filter (where vt <= clock_timestamp()), count(*),
  extract(epoch from clock_timestamp() - min(enqueued_at) filter (where isfinite(enqueued_at)))::float8
from pgmq.{table}
"""
_AT_A_TIME = 50  # queues whose tables one statement locks


@dataclass(frozen=True)
class Queue:
    """A queue that pgflow uses, and what is in it.

    Attributes:
        queue_name: the physical name.
        visible: messages that a worker could read now; None when it was not to be read.
        total: all messages, those that are hidden (claimed or delayed) too; None as before.
        oldest_age: seconds since the oldest of them was sent; None where there are none, or each was sent at
            an infinite time, and as before.
        problem: ``absent`` when there is no such table, ``unreadable`` when the role may not read it; or
            None.
    """

    queue_name: str
    visible: int | None
    total: int | None
    oldest_age: float | None
    problem: str | None


@dataclass(frozen=True)
class Timeout:
    """A time limit of the server that holds for the role's ordinary statements here.

    Attributes:
        name: such as ``statement_timeout``.
        value: as PostgreSQL writes it, such as ``2min``; None when there is no limit.
        source: where it was set, as pg_settings has it: ``default``, ``configuration file``, ``database``,
            ``user``, ``database user``, ``client``, …
    """

    name: str
    value: str | None
    source: str


def timeouts(connection: Connection) -> tuple[Timeout, ...]:
    """The time limits in force; to be asked before the session has set any of its own."""
    rows = connection.cursor(row_factory=tuple_row).execute(
        """
        select s.name, nullif(current_setting(s.name), '0'), s.source
        from pg_catalog.pg_settings s
        where s.name = any (%s)
        order by pg_catalog.array_position(%s, s.name)
        """,
        ([*_TIMEOUTS, _TIMEOUTS_17], [*_TIMEOUTS, _TIMEOUTS_17]),
    )
    return tuple(Timeout(*row) for row in rows)


def upgrades(connection: Connection) -> tuple[int, ...]:
    """The server processes of upgrades that are running; what they do is not to be seen yet."""
    return tuple(pid for (pid,) in connection.cursor(row_factory=tuple_row).execute(_UPGRADES))


def missing_grants(connection: Connection) -> tuple[str, ...]:
    """The GRANT statements without which the role may not read workers and queues' names; often none."""
    tables = ["workers", "worker_functions", "flows", "steps"]
    rows = connection.cursor(row_factory=tuple_row).execute(_MISSING, (tables,))
    return tuple(statement for (statement,) in rows)


def workers(connection: Connection) -> tuple[LiveWorker, ...]:
    """The workers that have given a sign of life, by the rule by which the upgrade refuses."""
    rows = connection.cursor(row_factory=tuple_row).execute(_WORKERS)
    return tuple(LiveWorker(*row) for row in rows)


def queues(connection: Connection) -> tuple[Queue, ...]:
    """Every queue of a flow or a step, by name."""
    cursor = connection.cursor(row_factory=tuple_row)
    routed = cursor.execute(_ROUTED).fetchall()[0][0]
    names = [
        name for (name,) in cursor.execute(f"{_DEFAULT_QUEUES} {_STEP_QUEUES if routed else ''}".encode())
    ]
    states: dict[str, str] = dict(cursor.execute(_TABLES, (names,)).fetchall())
    depths = _depths(cursor, [name for name, state in states.items() if state == "readable"])
    found = {queue.queue_name: queue for queue in depths}
    return tuple(found.get(name) or Queue(name, None, None, None, state) for name, state in states.items())


def _depths(cursor: psycopg.Cursor[tuple[Any, ...]], names: Sequence[str]) -> Iterator[Queue]:
    for start in range(0, len(names), _AT_A_TIME):
        query = sql.SQL("union all").join(
            sql.SQL(_DEPTH).format(name=sql.Literal(name), table=sql.Identifier(f"q_{name}"))
            for name in names[start : start + _AT_A_TIME]
        )
        # Rolled back, because that gives the locks back: those of thousands of queues would exhaust the
        # server's lock table.
        with cursor.connection.transaction(force_rollback=True):
            rows = cursor.execute(query).fetchall()
        for name, visible, total, age in rows:
            yield Queue(name, visible, total, age, None)
