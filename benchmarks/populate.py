"""Fill a pgflow database with many runs, fast and consistent: what the benchmarks measure on.

    python benchmarks/populate.py --dsn DSN --tasks 1000000 --flows 500 --messages 50000

Every flow has a single step ``fetch`` and a map step ``handle`` over its output. A finished run has up to ten
tasks, all completed, their messages in the archive. A running one has its ``fetch`` completed and up to nine
``handle`` tasks queued, their messages in the queue. Rows, message ids, bodies and queue sequences are what
the old core's own functions would have left; only the timestamps are made up.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import click
import psycopg

from pgflow_migrate import database

MAP_WIDTH = 9
FLOWS_PER_TRANSACTION = 200
"""A transaction over the queues of all flows could fill the server's lock table."""

_NAMES = """
  create temp table flow as
  select format('flow_%%s', lpad(n.n::text, 5, '0')) as slug, (n.n - 1) / %(flows_per_transaction)s as batch
  from generate_series(1, %(flows)s) as n (n);
"""

_DEFINITIONS = """
  select pgflow.create_flow(f.slug) from flow f where f.batch = %(batch)s;

  select
    pgflow.add_step(f.slug, 'fetch'),
    pgflow.add_step(f.slug, 'handle', array['fetch'], step_type => 'map')
  from flow f
  where f.batch = %(batch)s;
"""

# One row a run. Running ones take their messages first, finished ones share the tasks that remain.
_PLAN = """
  create temp table plan as
  with size as (
    select
      %(messages)s::bigint as messages,
      %(tasks)s::bigint - %(messages)s - ceil(%(messages)s / {width}.0)::bigint as finished_tasks
  ),
  run as (
    select
      n.n as number, false as finished, least({width}, s.messages - (n.n - 1) * {width})::integer as width
    from size s, generate_series(1, ceil(s.messages / {width}.0)::bigint) as n (n)
    union all
    select n.n, true, least({width} + 1, s.finished_tasks - (n.n - 1) * ({width} + 1))::integer - 1
    from size s, generate_series(1, ceil(s.finished_tasks / ({width} + 1.0))::bigint) as n (n)
  )
  select
    gen_random_uuid() as run_id,
    format('flow_%%s', lpad((1 + (r.number - 1) %% %(flows)s)::text, 5, '0')) as flow_slug,
    r.finished, r.width,
    now() - interval '30 days' + r.number * interval '1 second' as started_at,
    (select coalesce(jsonb_agg(i order by i), '[]') from generate_series(0, r.width - 1) as i) as elements
  from run r;
""".replace("{width}", str(MAP_WIDTH))

_ROWS = """
  insert into pgflow.runs (
    run_id, flow_slug, status, input, output, remaining_steps, started_at, completed_at
  )
  select
    p.run_id, p.flow_slug, case when p.finished then 'completed' else 'started' end, '{}',
    case when p.finished then jsonb_build_object('handle', p.elements) end,
    case when p.finished then 0 else 1 end, p.started_at,
    case when p.finished then p.started_at + interval '2 minutes' end
  from plan p;

  insert into pgflow.step_states (
    flow_slug, run_id, step_slug, status, remaining_tasks, initial_tasks, output, created_at, started_at,
    completed_at
  )
  select
    p.flow_slug, p.run_id, 'fetch', 'completed', 0, 1, p.elements, p.started_at, p.started_at,
    p.started_at + interval '1 minute'
  from plan p
  union all
  select
    p.flow_slug, p.run_id, 'handle', case when p.finished then 'completed' else 'started' end,
    case when p.finished then 0 else p.width end, p.width, case when p.finished then p.elements end,
    p.started_at, p.started_at + interval '1 minute',
    case when p.finished then p.started_at + interval '2 minutes' end
  from plan p;

  create temp table task as
  select
    p.flow_slug, p.run_id, t.step_slug, t.task_index, t.queued_at,
    case when p.finished or t.step_slug = 'fetch' then 'completed' else 'queued' end as status,
    row_number() over (
      partition by p.flow_slug order by t.queued_at, p.run_id, t.step_slug, t.task_index
    ) as message_id
  from plan p
  cross join lateral (
    select 'fetch' as step_slug, 0 as task_index, p.started_at as queued_at
    union all
    select 'handle', i, p.started_at + interval '1 minute' from generate_series(0, p.width - 1) as i
  ) t;

  create index on task (flow_slug);
  analyze task;

  insert into pgflow.step_tasks (
    flow_slug, run_id, step_slug, message_id, task_index, status, attempts_count, output, queued_at,
    started_at, completed_at
  )
  select
    t.flow_slug, t.run_id, t.step_slug, t.message_id, t.task_index, t.status,
    case when d.completed then 1 else 0 end, case when d.completed then to_jsonb(t.task_index) end,
    t.queued_at, case when d.completed then t.queued_at end,
    case when d.completed then t.queued_at + interval '1 minute' end
  from task t
  cross join lateral (select t.status = 'completed') as d (completed);
"""

_MESSAGES = """
do $messages$
declare
  v_flow text;
  v_queue text;
  v_body constant text := $body$
    jsonb_build_object('flow_slug', t.flow_slug, 'run_id', t.run_id, 'step_slug', t.step_slug,
      'task_index', t.task_index)
  $body$;
begin
  for v_flow in select f.slug from flow f where f.batch = %(batch)s order by f.slug loop
    v_queue := lower(v_flow);
    execute format($insert$
      insert into pgmq.%%I (msg_id, read_ct, enqueued_at, vt, message) overriding system value
      select t.message_id, 0, t.queued_at, t.queued_at, %%s
      from task t
      where t.flow_slug = $1 and t.status = 'queued'
      order by t.message_id
    $insert$, 'q_' || v_queue, v_body) using v_flow;
    execute format($insert$
      insert into pgmq.%%I (msg_id, read_ct, enqueued_at, archived_at, vt, message)
      select
        t.message_id, 1, t.queued_at, t.queued_at + interval '1 minute',
        t.queued_at + interval '1 minute', %%s
      from task t
      where t.flow_slug = $1 and t.status = 'completed'
      order by t.message_id
    $insert$, 'a_' || v_queue, v_body) using v_flow;
    perform setval(
      pg_get_serial_sequence(format('pgmq.%%I', 'q_' || v_queue), 'msg_id'), max(t.message_id)
    )
    from task t
    where t.flow_slug = v_flow
    having max(t.message_id) is not null;
  end loop;
end;
$messages$;
"""

_COUNTS = b"""
  select
    (select count(*) from pgflow.flows), (select count(*) from pgflow.runs),
    (select count(*) from pgflow.step_tasks)
"""


@dataclass(frozen=True)
class Populated:
    """What is in the database now, counted there, and how long it took in seconds."""

    flows: int
    runs: int
    tasks: int
    seconds: float


def populate(connection: psycopg.Connection[Any], *, tasks: int, flows: int, messages: int) -> Populated:
    """Add ``flows`` flows with ``tasks`` tasks, ``messages`` of which are queued; commits, and analyzes.

    Args:
        connection: of a role that may write to schemas pgflow and pgmq; not in a transaction.
        tasks: number of step_tasks rows; a tenth more than ``messages`` at the least.
        flows: number of flows, each with its queue.
        messages: number of active messages, each of a queued task.

    Raises:
        ValueError: ``tasks`` does not suffice for the tasks that running runs have completed.
    """
    needed = messages + -(-messages // MAP_WIDTH)
    if tasks < needed:
        raise ValueError(f"{messages} queued tasks need at least {needed} tasks in all")
    began = time.monotonic()
    sizes = {
        "tasks": tasks,
        "flows": flows,
        "messages": messages,
        "flows_per_transaction": FLOWS_PER_TRANSACTION,
    }
    batches = [{"batch": batch} for batch in range(-(-flows // FLOWS_PER_TRANSACTION))]
    scripts = [
        _NAMES % sizes,
        *(_DEFINITIONS % batch for batch in batches),
        _PLAN % sizes,
        _ROWS,
        *(_MESSAGES % batch for batch in batches),
        "drop table flow, plan, task",
    ]
    for script in scripts:
        connection.execute(script.encode())
        connection.commit()
    connection.execute(
        b"analyze pgflow.runs, pgflow.step_states, pgflow.step_tasks, pgflow.flows, pgflow.steps"
    )
    connection.commit()
    counted = connection.cursor(row_factory=psycopg.rows.tuple_row).execute(_COUNTS).fetchall()
    connection.commit()
    ((flow_count, run_count, task_count),) = counted
    return Populated(flow_count, run_count, task_count, time.monotonic() - began)


@click.command()
@click.option(
    "--dsn", default="", help="Database at a release before queue identity (default: libpq's variables)."
)
@click.option("--tasks", default=1_000_000, show_default=True, help="Number of tasks.")
@click.option("--flows", default=500, show_default=True, help="Number of flows.")
@click.option("--messages", default=50_000, show_default=True, help="Number of active messages.")
def main(dsn: str, tasks: int, flows: int, messages: int) -> None:
    """Fill a pgflow database with many runs."""
    with database.connect(dsn) as connection:
        done = populate(connection, tasks=tasks, flows=flows, messages=messages)
    click.echo(f"{done.tasks} tasks in {done.runs} runs of {done.flows} flows in {done.seconds:.1f} s")


if __name__ == "__main__":
    main()
