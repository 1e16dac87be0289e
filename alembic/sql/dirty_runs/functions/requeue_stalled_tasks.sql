-- Recovery, called by cron: a task that has been started for longer than its timeout and 30 seconds more is queued
-- again, three times; the fourth time it is given up. Locks: tasks (those held by others are passed over), queues.
-- SECURITY DEFINER because the cron job may run as a role without rights on the tables, as ever since it exists.
create or replace function pgflow.requeue_stalled_tasks()
returns integer
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  max_requeues constant integer := 3;
  stalled tid[];  -- row addresses; the rows stay locked, and so where they are
  missing_queues text;
  requeued_count integer;
  requeued_queues text[];
  requeued_msg_ids bigint[];
  given_up_queues text[];
  given_up_msg_ids bigint[];
  batch record;
begin
  -- One queue that is missing must not keep the tasks of all others from being recovered.
  select
    array_agg(locked.ctid) filter (where locked.recoverable),
    string_agg(distinct format('"%s"', locked.queue_name), ', ') filter (where not locked.recoverable)
  into stalled, missing_queues
  from (
    select
      task.ctid,
      task.queue_name,
      task.message_id is null
        or (
          to_regclass(format('pgmq.%I', 'q_' || task.queue_name)) is not null
          and to_regclass(format('pgmq.%I', 'a_' || task.queue_name)) is not null
        ) as recoverable
    from pgflow.step_tasks task
    join pgflow.runs run on run.run_id = task.run_id and run.status = 'started'
    join pgflow.step_states state
      on state.run_id = task.run_id and state.step_slug = task.step_slug and state.status = 'started'
    join pgflow.flows flow on flow.flow_slug = task.flow_slug
    join pgflow.steps step on step.flow_slug = task.flow_slug and step.step_slug = task.step_slug
    where task.status = 'started'
      and not exists (select from pgflow.run_work work where work.run_id = task.run_id)
      and task.permanently_stalled_at is null
      and task.started_at < now() - make_interval(secs => coalesce(step.opt_timeout, flow.opt_timeout) + 30.0)
    order by task.run_id, task.step_slug, task.task_index
    for update of task skip locked
  ) locked;
  if missing_queues is not null then
    raise warning 'stalled tasks are not recovered: their queue or its archive is missing: %', missing_queues
      using hint = 'pgmq.create() makes what is missing.';
  end if;

  with given_up as (
    update pgflow.step_tasks task
    set permanently_stalled_at = now()
    where task.ctid = any (stalled) and task.requeued_count >= max_requeues
    returning task.queue_name, task.message_id
  ),
  requeued as (
    update pgflow.step_tasks task
    set status = 'queued',
        started_at = null,
        last_worker_id = null,
        requeued_count = task.requeued_count + 1,
        last_requeued_at = now()
    where task.ctid = any (stalled) and task.requeued_count < max_requeues
    returning task.queue_name, task.message_id
  ),
  changed as (
    select given_up.*, true as give_up from given_up
    union all
    select requeued.*, false from requeued
  )
  select
    count(*) filter (where not changed.give_up),
    array_agg(changed.queue_name) filter (where not changed.give_up),
    array_agg(changed.message_id) filter (where not changed.give_up),
    array_agg(changed.queue_name) filter (where changed.give_up),
    array_agg(changed.message_id) filter (where changed.give_up)
  into requeued_count, requeued_queues, requeued_msg_ids, given_up_queues, given_up_msg_ids
  from changed;

  for batch in
    select message.queue_name, array_agg(message.msg_id order by message.msg_id) as msg_ids
    from unnest(requeued_queues, requeued_msg_ids) as message (queue_name, msg_id)
    where message.msg_id is not null
    group by message.queue_name
    order by message.queue_name
  loop
    perform pgflow.set_vt_batch(batch.queue_name, batch.msg_ids, array_fill(0, array[cardinality(batch.msg_ids)]));
  end loop;

  perform pgflow._archive_messages(given_up_queues, given_up_msg_ids);

  return requeued_count;
end;
$$;

comment on function pgflow.requeue_stalled_tasks() is
  'Queue started tasks of protocol 1 again whose run and step are running and that are older than the effective '
  'timeout plus 30 seconds; their messages become visible at once. After three times a task is marked permanently '
  'stalled and its message archived. Tasks whose queue or archive is missing are left alone, with a warning. '
  'Returns how many were queued again.';
