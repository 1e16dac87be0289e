-- The claim of a plain worker: its flow's default queue, its flow, the messages it has read.
create or replace function pgflow.start_tasks(flow_slug text, msg_ids bigint[], worker_id uuid)
returns setof pgflow.step_task_record
language plpgsql
volatile
set search_path = ''
as $$
declare
  default_queue constant text := lower(start_tasks.flow_slug);
  claimed_ids bigint[];
  visible_for integer[];
  made_visible integer;
begin
  -- Locked in key order, as the paths that end tasks lock them, and then updated by the same condition.
  perform
  from pgflow.step_tasks task
  where task.queue_name = default_queue
    and task.flow_slug = start_tasks.flow_slug
    and task.message_id = any (start_tasks.msg_ids)
    and task.status = 'queued'
  order by task.run_id, task.step_slug, task.task_index
  for update;

  with claimed as (
    update pgflow.step_tasks task
    set status = 'started',
        attempts_count = task.attempts_count + 1,
        started_at = now(),
        last_worker_id = start_tasks.worker_id
    from pgflow.step_states state
    join pgflow.runs run on run.run_id = state.run_id
    where task.queue_name = default_queue
      and task.flow_slug = start_tasks.flow_slug
      and task.message_id = any (start_tasks.msg_ids)
      and task.status = 'queued'
      and state.run_id = task.run_id
      and state.step_slug = task.step_slug
      and state.status = 'started'
      and run.status = 'started'
    returning task.message_id, task.step_slug
  )
  select
    array_agg(claimed.message_id order by claimed.message_id),
    array_agg(coalesce(step.opt_timeout, flow.opt_timeout) + 2 order by claimed.message_id)
  into claimed_ids, visible_for
  from claimed
  join pgflow.steps step on step.flow_slug = start_tasks.flow_slug and step.step_slug = claimed.step_slug
  join pgflow.flows flow on flow.flow_slug = step.flow_slug;

  if claimed_ids is null then
    return;
  end if;

  select count(*) into made_visible
  from pgflow.set_vt_batch(default_queue, claimed_ids, visible_for);
  if made_visible <> cardinality(claimed_ids) then
    raise exception 'start_tasks(): visibility updated % of % claimed messages', made_visible, cardinality(claimed_ids)
      using errcode = 'invalid_text_representation';
  end if;

  return query
  select
    task.flow_slug,
    task.run_id,
    task.step_slug,
    case
      when step.step_type = 'map' and step.deps_count = 0 then run.input -> task.task_index
      when step.step_type = 'map' then parents.only_output -> task.task_index
      else coalesce(parents.outputs, '{}'::jsonb)
    end,
    task.message_id,
    task.task_index,
    case when step.step_type = 'single' and step.deps_count = 0 then run.input end
  from pgflow.step_tasks task
  join pgflow.runs run on run.run_id = task.run_id
  join pgflow.steps step on step.flow_slug = task.flow_slug and step.step_slug = task.step_slug
  left join lateral (
    select
      jsonb_object_agg(parent.step_slug, parent.output) as outputs,
      (array_agg(parent.output))[1] as only_output
    from pgflow.deps dep
    join pgflow.step_states parent
      on parent.run_id = task.run_id and parent.step_slug = dep.dep_slug and parent.status = 'completed'
    where dep.flow_slug = task.flow_slug and dep.step_slug = task.step_slug
  ) parents on step.deps_count > 0
  where task.queue_name = default_queue and task.message_id = any (claimed_ids);
end;
$$;

comment on function pgflow.start_tasks(text, bigint[], uuid) is
  'Claim the queued tasks of a flow behind messages read from its default queue: one attempt is counted, '
  'and the message stays invisible for the effective timeout plus 2 seconds. Returns only what was claimed. '
  '22P02 when a claimed task''s message is not in the queue; then nothing is claimed.';
