-- A single step has produced what no map can be made of: task, run and step fail, the rest of the run is cancelled.
create or replace function pgflow._fail_run_for_type_violation(
  p_run_id uuid, p_step_slug text, p_task_index integer, p_output jsonb, p_task_error text, p_step_error text
)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgflow._require_protocol_1(p_run_id);
  -- the task's row before any queue row
  update pgflow.step_tasks task
  set status = 'failed',
      -- Not before the start, as in complete_task.
      failed_at = greatest(now(), task.started_at),
      output = p_output,
      error_message = p_task_error
  where task.run_id = p_run_id and task.step_slug = p_step_slug and task.task_index = p_task_index;

  update pgflow.runs run set status = 'failed', failed_at = now() where run.run_id = p_run_id;

  perform realtime.send(
    jsonb_build_object(
      'event_type', 'run:failed',
      'run_id', run.run_id,
      'flow_slug', run.flow_slug,
      'status', 'failed',
      'failed_at', run.failed_at
    ),
    'run:failed',
    concat('pgflow:run:', run.run_id),
    false
  )
  from pgflow.runs run
  where run.run_id = p_run_id;

  update pgflow.step_states state
  set status = 'failed', failed_at = now(), error_message = p_step_error
  where state.run_id = p_run_id and state.step_slug = p_step_slug;

  perform realtime.send(
    jsonb_build_object(
      'event_type', 'step:failed',
      'run_id', p_run_id,
      'step_slug', p_step_slug,
      'status', 'failed',
      'error_message', p_step_error,
      'failed_at', now()
    ),
    concat('step:', p_step_slug, ':failed'),
    concat('pgflow:run:', p_run_id),
    false
  );

  perform pgflow._end_unfinished_tasks(p_run_id, null, 'cancelled');
  perform pgflow._archive_task_message(p_run_id, p_step_slug, p_task_index);
end;
$$;

comment on function pgflow._fail_run_for_type_violation(uuid, text, integer, jsonb, text, text) is
  'Internal, called by complete_task under the locks of run and step. Fails the task (keeping the offending '
  'output), the run and the step, sends run:failed and step:failed, cancels every unfinished task and '
  'archives the messages.';
