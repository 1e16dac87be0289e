-- start_tasks(flow_slug, msg_ids, worker_id): claim the tasks of messages that a worker has read.
-- 0.15.0: returns every candidate, also one that a concurrent call took first; leaves the visibility that the
-- read has set, whatever the step's timeout.
-- Core behaviour: start_tasks.

create function pgflow.start_tasks(flow_slug text, msg_ids bigint[], worker_id uuid)
returns setof pgflow.step_task_record
language sql
set search_path = ''
as $function$
  with candidates as (
    select
      task.flow_slug,
      task.run_id,
      task.step_slug,
      task.task_index,
      task.message_id,
      run.input as run_input,
      step.step_type,
      step.deps_count
    from pgflow.step_tasks as task
    join pgflow.runs as run
      on run.run_id = task.run_id
      and run.status = 'started'
    join pgflow.step_states as state
      on state.run_id = task.run_id
      and state.step_slug = task.step_slug
      and state.status = 'started'
    join pgflow.steps as step
      on step.flow_slug = task.flow_slug
      and step.step_slug = task.step_slug
    where task.flow_slug = start_tasks.flow_slug
      and task.message_id = any (start_tasks.msg_ids)
      and task.status = 'queued'
  ),
  -- The same conditions, not a join with the candidates: a plan made on stale statistics would be quadratic.
  claimed as (
    update pgflow.step_tasks as task
    set status = 'started',
        attempts_count = task.attempts_count + 1,
        started_at = now(),
        last_worker_id = start_tasks.worker_id
    from pgflow.runs as run, pgflow.step_states as state
    where task.flow_slug = start_tasks.flow_slug
      and task.message_id = any (start_tasks.msg_ids)
      and task.status = 'queued'
      and run.run_id = task.run_id
      and run.status = 'started'
      and state.run_id = task.run_id
      and state.step_slug = task.step_slug
      and state.status = 'started'
  )
  select
    candidate.flow_slug,
    candidate.run_id,
    candidate.step_slug,
    case
      when candidate.step_type = 'single' then (
        select coalesce(jsonb_object_agg(parent.step_slug, parent.output), '{}'::jsonb)
        from pgflow.deps as dep
        join pgflow.step_states as parent
          on parent.run_id = candidate.run_id
          and parent.step_slug = dep.dep_slug
          and parent.status = 'completed'
        where dep.flow_slug = candidate.flow_slug
          and dep.step_slug = candidate.step_slug
      )
      when candidate.deps_count = 0 then candidate.run_input -> candidate.task_index
      else (
        -- A map has one parent at most.
        select parent.output -> candidate.task_index
        from pgflow.deps as dep
        join pgflow.step_states as parent
          on parent.run_id = candidate.run_id
          and parent.step_slug = dep.dep_slug
          and parent.status = 'completed'
        where dep.flow_slug = candidate.flow_slug
          and dep.step_slug = candidate.step_slug
        limit 1
      )
    end,
    candidate.message_id,
    candidate.task_index,
    case
      when candidate.step_type = 'single' and candidate.deps_count = 0 then candidate.run_input
    end
  from candidates as candidate;
$function$;

comment on function pgflow.start_tasks(text, bigint[], uuid) is
  'Claims the queued tasks of these messages of the flow for the worker; returns them with their input.';
