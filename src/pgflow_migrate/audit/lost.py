"""Live tasks whose message is not in their queue: nobody will ever claim them, upgraded or not.

No finding, because the upgrade neither causes nor cures it; ``verify`` tells the same afterwards. It is told
beside the findings, so that it is known before.
"""

from __future__ import annotations

from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from pgflow_migrate.audit.findings import LostMessages

_SAMPLES: Final = 20
_QUEUES_PER_QUERY: Final = 500

_SETTINGS: Final = """
set local search_path = pg_catalog, pg_temp;
set local jit = off;
set local enable_nestloop = off;
select set_config('work_mem', '64MB', true)
where pg_size_bytes(current_setting('work_mem')) < pg_size_bytes('64MB');
"""

# Whether the role sees all rows of these, and whether tasks name their queues.
_TABLES: Final = """
select
  count(*) = 3 and bool_and(has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select')
    and not row_security_active(c.oid)),
  bool_or(c.relname = 'step_tasks' and exists (
    select from pg_attribute a where a.attrelid = c.oid and a.attname = 'queue_name' and not a.attisdropped
  ))
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'pgflow' and c.relname in ('runs', 'step_states', 'step_tasks')
"""

_QUEUES: Final = """
select l.queue_name,
  coalesce((select count(*) = 1 from pg_attribute a
    where a.attrelid = c.oid and a.attname = 'msg_id' and a.atttypid = 'bigint'::regtype), false),
  c.oid is null or (has_schema_privilege(c.relnamespace, 'usage') and has_table_privilege(c.oid, 'select')
    and not row_security_active(c.oid))
from (
  select distinct {queue} as queue_name
  from pgflow.step_tasks t
  where t.status in ('queued', 'started') and t.message_id is not null
) l
left join (
  pg_class c join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'pgmq'
) on c.relname = {prefix} || l.queue_name and c.relkind in ('r', 'p')
order by 1
"""

# Live as in verify/operation.sql. Messages are looked for first: as a rule that leaves no task to join.
_TOLD: Final = """
with suspect as materialized (
  select t.flow_slug, {queue} as queue_name, t.run_id, t.step_slug, t.task_index
  from pgflow.step_tasks t
  where t.status in ('queued', 'started') and t.permanently_stalled_at is null and t.message_id is not null
    and {queue} = any ({names})
    and {exists} (select from ({messages}) m where m.queue_name = {queue} and m.msg_id = t.message_id)
)
select t.flow_slug, t.queue_name, count(*),
  (array_agg(concat_ws('/', t.run_id, t.step_slug, t.task_index)
    order by t.run_id, t.step_slug collate "C", t.task_index))[1:{samples}]
from suspect t
join pgflow.runs r on r.run_id = t.run_id and r.status = 'started'
join pgflow.step_states s on s.run_id = t.run_id and s.step_slug = t.step_slug and s.status = 'started'
group by 1, 2
"""

_NO_MESSAGE: Final = sql.SQL("select null::text as queue_name, null::bigint as msg_id where false")


def lost_messages(
    connection: psycopg.Connection[Any], *, samples: int = _SAMPLES
) -> tuple[LostMessages, ...] | None:
    """Count them in the caller's transaction; changes nothing, and gives back what it locks.

    Args:
        connection: in a transaction, to a database of a known release.
        samples: how many tasks are named at most.

    Returns:
        by flow and queue; None where the role may not read what it takes to say, or where that is not there.

    Raises:
        psycopg.Error: the server ended it, or a lock was not to be had.
    """
    return _live_tasks(connection, "q_", sql.SQL("not exists"), samples)


def archived_messages(
    connection: psycopg.Connection[Any], *, samples: int = _SAMPLES
) -> tuple[LostMessages, ...] | None:
    """The same of live tasks whose message is in the archive, whether it is in the queue or not."""
    return _live_tasks(connection, "a_", sql.SQL("exists"), samples)


def _live_tasks(
    connection: psycopg.Connection[Any], prefix: str, exists: sql.SQL, samples: int
) -> tuple[LostMessages, ...] | None:
    with connection.transaction(force_rollback=True):
        cursor = connection.cursor(row_factory=tuple_row)
        cursor.execute(_SETTINGS)
        ((readable, routed),) = cursor.execute(_TABLES).fetchall()
        if not readable:
            return None
        queue = sql.SQL("t.queue_name" if routed else "lower(t.flow_slug)")
        queues = cursor.execute(sql.SQL(_QUEUES).format(prefix=sql.Literal(prefix), queue=queue)).fetchall()
    if not all(may_be_read for _, _, may_be_read in queues):
        return None
    there = {name for name, is_there, _ in queues if is_there}
    names = [name for name, _, _ in queues]
    found: list[LostMessages] = []
    for start in range(0, len(names), _QUEUES_PER_QUERY):
        some = names[start : start + _QUEUES_PER_QUERY]
        tables: list[sql.Composable] = [
            sql.SQL("select {} as queue_name, msg_id from pgmq.{}").format(
                sql.Literal(name), sql.Identifier(f"{prefix}{name}")
            )
            for name in some
            if name in there
        ]
        # Without parameters: a name may have a percent sign.
        query = sql.SQL(_TOLD).format(
            samples=sql.Literal(samples),
            queue=queue,
            names=sql.Literal(some),
            exists=exists,
            messages=sql.SQL(" union all ").join(tables or [_NO_MESSAGE]),
        )
        # Rolled back, because that gives the locks back: those of thousands of queues would exhaust the
        # server's lock table.
        with connection.transaction(force_rollback=True):
            cursor = connection.cursor(row_factory=tuple_row)
            cursor.execute(_SETTINGS)
            rows = cursor.execute(query).fetchall()
        found += [LostMessages(flow, queue, tasks, tuple(named)) for flow, queue, tasks, named in rows]
    return tuple(sorted(found, key=lambda lost: (lost.flow_slug, lost.queue_name)))
