-- The message of one task leaves its own queue, whatever the run's flow is called.
create or replace function pgflow._archive_task_message(p_run_id uuid, p_step_slug text, p_task_index integer)
returns void
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  select pgmq.archive(task.queue_name, task.message_id)
  from pgflow.step_tasks task
  where task.run_id = p_run_id
    and task.step_slug = p_step_slug
    and task.task_index = p_task_index
    and task.message_id is not null
    and not pgflow._speaks_protocol_2(task.run_id);
$$;

comment on function pgflow._archive_task_message(uuid, text, integer) is
  'Internal. Archive a task''s message in the task''s queue. No task, no message, archived already, or a task of '
  'protocol 2: nothing happens.';
