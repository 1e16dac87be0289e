"""Making queues members of extension pgmq, as PGMQ up to 1.5 does, and undoing it."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import tuple_row

from pgflow_migrate.errors import PgflowMigrateError

_Connection = psycopg.Connection[Any]

# A queue's relations in the order in which PGMQ 1.5.1 adds them, and whether each is a member.
# The sequence is found through the column: its name is not guaranteed.
_RELATIONS = """
  with tables as (
    select
      to_regclass(format('pgmq.%%I', pgmq.format_table_name(%(queue)s, 'q'))) as queue_table,
      to_regclass(format('pgmq.%%I', pgmq.format_table_name(%(queue)s, 'a'))) as archive_table
  ),
  relations as (
    select 1 as position, 'table' as kind, queue_table as relation from tables
    union all
    select 2, 'table', archive_table from tables
    union all
    select 3, 'sequence', pg_get_serial_sequence(queue_table::text, 'msg_id')::regclass from tables
  )
  select
    r.kind,
    c.relname,
    exists (
      select from pg_depend d
      join pg_extension e on e.oid = d.refobjid
      where d.classid = 'pg_class'::regclass
        and d.objid = r.relation
        and d.objsubid = 0
        and d.refclassid = 'pg_extension'::regclass
        and d.deptype = 'e'
        and e.extname = 'pgmq'
    ) as member
  from relations r
  left join pg_class c on c.oid = r.relation
  order by r.position
"""


def attach_queues_to_extension(connection: _Connection, *queue_names: str) -> None:
    """Make each queue's table, archive and sequence members of extension pgmq, as PGMQ up to 1.5 leaves them.

    Args:
        connection: of the extension's owner.
        queue_names: in any case; without any, every queue in ``pgmq.meta``.

    Raises:
        PgflowMigrateError: PGMQ is not an extension here, or a queue or a part of it is missing.
    """
    _change(connection, queue_names, member=True)


def detach_queues_from_extension(connection: _Connection, *queue_names: str) -> None:
    """The reverse: leave each queue as PGMQ 1.6 and later does, a member of nothing.

    Takes the same arguments as :func:`attach_queues_to_extension` and raises the same.
    """
    _change(connection, queue_names, member=False)


def _change(connection: _Connection, queue_names: tuple[str, ...], *, member: bool) -> None:
    verb = sql.SQL("add" if member else "drop")
    with connection.transaction(), connection.cursor(row_factory=tuple_row) as cursor:
        if not cursor.execute("select from pg_extension where extname = 'pgmq'").fetchall():
            raise PgflowMigrateError("PGMQ is not installed as an extension in this database.")
        if not queue_names:
            cursor.execute("select queue_name from pgmq.meta order by 1")
            queue_names = tuple(name for (name,) in cursor.fetchall())
        for queue in queue_names:
            for kind, name, is_member in cursor.execute(_RELATIONS, {"queue": queue}).fetchall():
                if name is None:
                    raise PgflowMigrateError(
                        f"Queue {queue!r} is missing or has lost its table, archive or sequence."
                    )
                if is_member != member:
                    cursor.execute(
                        sql.SQL("alter extension pgmq {} {} {}").format(
                            verb, sql.SQL(kind), sql.Identifier("pgmq", name)
                        )
                    )
