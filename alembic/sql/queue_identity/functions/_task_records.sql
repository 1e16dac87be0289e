-- What a worker needs of the tasks that it has claimed.
create or replace function pgflow._task_records(p_queue_name text, p_msg_ids bigint[])
returns setof pgflow.step_task_record
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select
    task.flow_slug,
    task.run_id,
    task.step_slug,
    -- Subqueries, so that a map's array is not copied for each of its elements.
    case
      when step.step_type = 'single' then (
        select coalesce(jsonb_object_agg(parent.step_slug, parent.output), '{}')
        from pgflow.deps dep
        join pgflow.step_states parent
          on parent.run_id = task.run_id and parent.step_slug = dep.dep_slug and parent.status = 'completed'
        where dep.flow_slug = task.flow_slug and dep.step_slug = task.step_slug
      )
      when step.deps_count = 0 then run.input -> task.task_index
      else (
        select parent.output -> task.task_index
        from pgflow.deps dep
        join pgflow.step_states parent
          on parent.run_id = task.run_id and parent.step_slug = dep.dep_slug and parent.status = 'completed'
        where dep.flow_slug = task.flow_slug and dep.step_slug = task.step_slug
        limit 1
      )
    end,
    task.message_id,
    task.task_index,
    case when step.step_type = 'single' and step.deps_count = 0 then run.input end
  from pgflow.step_tasks task
  join pgflow.runs run on run.run_id = task.run_id
  join pgflow.steps step on step.flow_slug = task.flow_slug and step.step_slug = task.step_slug
  where task.queue_name = p_queue_name and task.message_id = any (p_msg_ids);
$$;

comment on function pgflow._task_records(text, bigint[]) is
  'Internal. A record for each task behind these messages of a queue: a map''s input is its element, a single '
  'step''s the outputs of its completed dependencies; flow_input only for single steps without dependencies.';
