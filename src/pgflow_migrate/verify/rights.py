"""What a role needs to see in order to verify: SELECT, and USAGE on three schemas."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.rows import tuple_row

_TABLES = """
with wanted (schema_name, table_name) as (
  values
    ('pgflow', null), ('pgflow', 'flows'), ('pgflow', 'steps'), ('pgflow', 'runs'), ('pgflow', 'step_states'),
    ('pgflow', 'step_tasks'), ('pgflow', 'run_work'), ('pgflow', 'task_claims'), ('pgmq', null),
    ('pgmq', 'meta'), ('pgflow_migrate', null),
    ('pgflow_migrate', 'alembic_version'), ('pgflow_migrate', 'schema_migrations')
)
select
  case
    when w.table_name is null
      then pg_catalog.format('grant usage on schema %I to %I;', n.nspname, current_user)
    when not pg_catalog.has_table_privilege(c.oid, 'select')
      then pg_catalog.format('grant select on %I.%I to %I;', n.nspname, c.relname, current_user)
    else pg_catalog.format(
      'Row security hides rows of %I.%I from %I: run as the owner, or as a role with bypassrls.',
      n.nspname, c.relname, current_user)
  end
from wanted w
join pg_catalog.pg_namespace n on n.nspname = w.schema_name
left join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relname = w.table_name
where case
    when w.table_name is null then not pg_catalog.has_schema_privilege(n.oid, 'usage')
    when c.oid is null then false
    else not pg_catalog.has_table_privilege(c.oid, 'select') or pg_catalog.row_security_active(c.oid)
  end
order by w.table_name is not null, n.nspname, c.relname
"""

_QUEUES = """
with queue as (
  select s.queue_name as name from pgflow.steps s where s.queue_name is not null
  union
  select lower(f.flow_slug)
  from pgflow.flows f
  join pgmq.meta m on lower(m.queue_name) = lower(f.flow_slug) and m.created_at = f.created_at
), relation as (
  select c.oid, c.relname
  from queue q
  join pg_catalog.pg_class c on c.relname in ('q_' || q.name, 'a_' || q.name) and c.relkind in ('r', 'p')
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace and n.nspname = 'pgmq'
)
select
  case
    when not pg_catalog.has_table_privilege(r.oid, 'select')
      then pg_catalog.format('grant select on pgmq.%I to %I;', r.relname, current_user)
    else pg_catalog.format(
      'Row security hides rows of pgmq.%I from %I: run as the owner, or as a role with bypassrls.',
      r.relname, current_user)
  end
from relation r
where not pg_catalog.has_table_privilege(r.oid, 'select') or pg_catalog.row_security_active(r.oid)
union all
select pg_catalog.format('grant select on sequence pgmq.%I to %I;', s.relname, current_user)
from relation r
join pg_catalog.pg_depend d on d.refobjid = r.oid and d.deptype = 'i'
  and d.refclassid = 'pg_catalog.pg_class'::regclass and d.classid = 'pg_catalog.pg_class'::regclass
join pg_catalog.pg_class s on s.oid = d.objid and s.relkind = 'S'
where not pg_catalog.has_table_privilege(s.oid, 'select')
order by 1
"""


def missing_rights(connection: psycopg.Connection[Any]) -> tuple[str, ...]:
    """The statements, or sentences, without which the role cannot see all that is verified; often none.

    Those for queues are known only to a role that may read the definitions.
    """
    cursor = connection.cursor(row_factory=tuple_row)
    for query in (_TABLES, _QUEUES):
        statements = tuple(statement for (statement,) in cursor.execute(query.encode()))
        if statements:
            return statements
    return ()
