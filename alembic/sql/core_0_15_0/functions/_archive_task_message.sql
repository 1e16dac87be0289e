-- _archive_task_message(p_run_id, p_step_slug, p_task_index): archive one task's message.
-- Why: callbacks end in it on every path that is done with the message.
-- Core behaviour: _archive_task_message.

create function pgflow._archive_task_message(p_run_id uuid, p_step_slug text, p_task_index integer)
returns void
language sql
set search_path = ''
as $function$
  select pgmq.archive(run.flow_slug, task.message_id)
  from pgflow.step_tasks as task
  join pgflow.runs as run on run.run_id = task.run_id
  where task.run_id = p_run_id
    and task.step_slug = p_step_slug
    and task.task_index = p_task_index
    and task.message_id is not null;
$function$;

comment on function pgflow._archive_task_message(uuid, text, integer) is
  'Archives the task''s message in the run''s queue; does nothing for an unknown task or without a message.';
