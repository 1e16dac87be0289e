"""A record of every change of every task, kept by a trigger, and what it must add up to."""

from __future__ import annotations

from typing import Any

import psycopg

Connection = psycopg.Connection[dict[str, Any]]

KEEP = """
create table public.ledger (
  number bigserial primary key,
  run_id uuid not null, step_slug text not null, task_index integer not null,
  was text, became text not null,
  attempts integer not null, requeues integer not null,
  requeued boolean not null, given_up boolean not null
);

create function public.note() returns trigger language plpgsql as $$
begin
  insert into public.ledger (
    run_id, step_slug, task_index, was, became, attempts, requeues, requeued, given_up
  )
  values (
    new.run_id, new.step_slug, new.task_index,
    case when tg_op = 'UPDATE' then old.status end, new.status,
    new.attempts_count, new.requeued_count,
    tg_op = 'UPDATE' and new.requeued_count > old.requeued_count,
    tg_op = 'UPDATE' and old.permanently_stalled_at is not null
  );
  return null;
end $$;

create trigger note_insert after insert on pgflow.step_tasks for each row execute function public.note();
create trigger note_update after update on pgflow.step_tasks
  for each row when (old.status <> new.status) execute function public.note();
"""

# An entry that no call may make. Attempts are those after the change.
ODD = """
select format('%s %s/%s: %s -> %s at attempt %s, requeue %s', ledger.run_id, ledger.step_slug,
  ledger.task_index, ledger.was, ledger.became, ledger.attempts, ledger.requeues) as what
from public.ledger
join pgflow.runs using (run_id)
join pgflow.steps on steps.flow_slug = runs.flow_slug and steps.step_slug = ledger.step_slug
join pgflow.flows on flows.flow_slug = runs.flow_slug
cross join lateral (select coalesce(steps.opt_max_attempts, flows.opt_max_attempts) as attempts) as most
where case
  when ledger.was is null then (ledger.became, ledger.attempts, ledger.requeues) <> ('queued', 0, 0)
  when (ledger.was, ledger.became) = ('queued', 'started') then ledger.attempts < 1
  when (ledger.was, ledger.became) = ('started', 'queued') and ledger.requeued then ledger.requeues > 3
  when (ledger.was, ledger.became) = ('started', 'queued')
    then ledger.attempts >= most.attempts or ledger.given_up
  when (ledger.was, ledger.became) = ('started', 'failed')
    then ledger.attempts < most.attempts and not ledger.given_up
  when (ledger.was, ledger.became) = ('started', 'completed') then false
  else ledger.was not in ('queued', 'started') or ledger.became not in ('skipped', 'cancelled')
end
"""

# Every attempt ends once: by a requeue, by a retry, or with the task.
SUMS = """
select tasks.run_id, tasks.step_slug, tasks.task_index, tasks.attempts_count, tasks.requeued_count,
  tasks.status, tasks.output,
  count(*) filter (where ledger.became = 'started') as starts,
  count(*) filter (where ledger.requeued) as requeues,
  count(*) filter (where ledger.was = 'started' and ledger.became = 'queued' and not ledger.requeued)
    as retries,
  count(*) filter (where ledger.was = 'started' and ledger.became not in ('started', 'queued'))
    as ended_at_work,
  count(*) filter (where ledger.became not in ('started', 'queued')) as ends,
  count(*) filter (where ledger.was is null) as births
from pgflow.step_tasks as tasks
left join public.ledger using (run_id, step_slug, task_index)
group by tasks.run_id, tasks.step_slug, tasks.task_index
"""


def odd_entries(connection: Connection) -> list[str]:
    """Entries of the ledger that break the rules for attempts, requeues and ends."""
    return [row["what"] for row in connection.execute(ODD).fetchall()]


def sums(connection: Connection) -> list[dict[str, Any]]:
    """For each task its row and the counts of its entries."""
    return connection.execute(SUMS).fetchall()


def wrong_sums(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tasks, all over by now, whose counters do not say what the ledger says."""
    return [
        row
        for row in rows
        if (row["births"], row["ends"]) != (1, 1)
        or row["starts"] != row["attempts_count"]
        or row["requeues"] != row["requeued_count"]
        or row["starts"] != row["requeues"] + row["retries"] + row["ended_at_work"]
    ]
