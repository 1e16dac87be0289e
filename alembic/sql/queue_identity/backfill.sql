-- queue_name for every step and task, null message ids included: lower(flow_slug).
--
-- Adding the column as a stored generated column computes and validates it in the one rewrite that the table goes
-- through; dropping the expression afterwards only touches the catalogue. An UPDATE would leave a dead version of
-- every row behind and write several times the WAL.
alter table pgflow.steps
  add column queue_name text not null generated always as (lower(flow_slug)) stored
    constraint queue_name_is_canonical check (queue_name ~ '^[a-z0-9_]{1,47}$');
alter table pgflow.steps
  alter column queue_name drop expression;

-- Superseded by step_tasks_queue_message_key, and rebuilt by the rewrite if it were dropped later.
drop index if exists pgflow.idx_step_tasks_queued_msg;

-- A task's name is a copy of its step's, which the regular expression above has judged. Judging it again would take
-- longer than the rewrite itself, and on every task that is ever started.
alter table pgflow.step_tasks
  add column queue_name text not null generated always as (lower(flow_slug)) stored
    constraint queue_name_is_canonical
      check (queue_name = lower(queue_name) and octet_length(queue_name) between 1 and 47);
alter table pgflow.step_tasks
  alter column queue_name drop expression;

-- Of a flow without steps it is two equal times that say from here on that the queue is its own. create_flow() of
-- 0.16.0 also took a queue that was there, and made a lost one anew: the preflight has found them whole and unshared.
update pgflow.flows flow
set created_at = meta.created_at
from pgmq.meta meta
where lower(meta.queue_name) = lower(flow.flow_slug)
  and meta.created_at <> flow.created_at
  and not exists (select from pgflow.steps step where step.flow_slug = flow.flow_slug);

comment on column pgflow.steps.queue_name is
  'Canonical (lower-case) name of the PGMQ queue that tasks of this step are sent to; at most 47 '
  'characters.';
comment on column pgflow.step_tasks.queue_name is
  'Canonical name of the PGMQ queue that this task was sent to: a snapshot of steps.queue_name, never '
  'changed.';
