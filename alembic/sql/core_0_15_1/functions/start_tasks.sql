-- start_tasks(flow_slug, msg_ids, worker_id): claim the tasks of messages that a worker has read.
-- 0.15.1: returns only what this call claimed, after setting each message's visibility to the effective
-- timeout plus two seconds. A message that is not in the queue fails the call, and with it every claim.
-- Core behaviour: start_tasks.

create or replace function pgflow.start_tasks(flow_slug text, msg_ids bigint[], worker_id uuid)
returns setof pgflow.step_task_record
language sql
set search_path = ''
as $function$
  -- One update, no self-join: a row that is skipped, cancelled or claimed while this call waits for it no
  -- longer matches, and no plan made on stale statistics is quadratic.
  with claimed as (
    update pgflow.step_tasks as task
    set status = 'started',
        attempts_count = task.attempts_count + 1,
        started_at = now(),
        last_worker_id = start_tasks.worker_id
    from pgflow.runs as run, pgflow.step_states as state, pgflow.steps as step, pgflow.flows as flow
    where task.flow_slug = start_tasks.flow_slug
      and task.message_id = any (start_tasks.msg_ids)
      and task.status = 'queued'
      and run.run_id = task.run_id
      and run.status = 'started'
      and state.run_id = task.run_id
      and state.step_slug = task.step_slug
      and state.status = 'started'
      and step.flow_slug = task.flow_slug
      and step.step_slug = task.step_slug
      and flow.flow_slug = task.flow_slug
    returning
      task.flow_slug,
      task.run_id,
      task.step_slug,
      task.task_index,
      task.message_id,
      run.input as run_input,
      step.step_type,
      step.deps_count,
      coalesce(step.opt_timeout, flow.opt_timeout) as timeout
  ),
  counted as (
    select
      (select count(*) from claimed) as claimed,
      (
        select count(*)
        from (
          select array_agg(claimed.message_id) as msg_ids, array_agg(claimed.timeout + 2) as vt_offsets
          from claimed
        ) as batch
        cross join lateral pgflow.set_vt_batch(start_tasks.flow_slug, batch.msg_ids, batch.vt_offsets)
      ) as updated
  ),
  -- SQL cannot raise; a cast that fails can, and its message carries the numbers.
  checked as (
    select case
      when counted.updated = counted.claimed then counted.updated::integer
      else format(
        'start_tasks(): visibility updated %s of %s claimed messages', counted.updated, counted.claimed
      )::integer
    end as updated
    from counted
  )
  select
    claimed.flow_slug,
    claimed.run_id,
    claimed.step_slug,
    case
      when claimed.step_type = 'single' then (
        select coalesce(jsonb_object_agg(parent.step_slug, parent.output), '{}'::jsonb)
        from pgflow.deps as dep
        join pgflow.step_states as parent
          on parent.run_id = claimed.run_id
          and parent.step_slug = dep.dep_slug
          and parent.status = 'completed'
        where dep.flow_slug = claimed.flow_slug
          and dep.step_slug = claimed.step_slug
      )
      when claimed.deps_count = 0 then claimed.run_input -> claimed.task_index
      else (
        -- A map has one parent at most.
        select parent.output -> claimed.task_index
        from pgflow.deps as dep
        join pgflow.step_states as parent
          on parent.run_id = claimed.run_id
          and parent.step_slug = dep.dep_slug
          and parent.status = 'completed'
        where dep.flow_slug = claimed.flow_slug
          and dep.step_slug = claimed.step_slug
        limit 1
      )
    end,
    claimed.message_id,
    claimed.task_index,
    case
      when claimed.step_type = 'single' and claimed.deps_count = 0 then claimed.run_input
    end
  from claimed
  cross join checked
  where checked.updated is not null;
$function$;

comment on function pgflow.start_tasks(text, bigint[], uuid) is
  'Claims the queued tasks of these messages of the flow for the worker; returns them with their input.';
