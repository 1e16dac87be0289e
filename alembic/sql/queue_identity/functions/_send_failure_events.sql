-- The two events of a step whose failure fails its run, in the order that listeners know.
create or replace function pgflow._send_failure_events(p_run_id uuid, p_step_slug text, p_error_message text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform realtime.send(
    jsonb_build_object(
      'event_type', 'step:failed',
      'run_id', p_run_id,
      'step_slug', p_step_slug,
      'status', 'failed',
      'error_message', p_error_message,
      'failed_at', now()
    ),
    concat('step:', p_step_slug, ':failed'),
    concat('pgflow:run:', p_run_id),
    false
  );
  perform realtime.send(
    jsonb_build_object(
      'event_type', 'run:failed',
      'run_id', run.run_id,
      'flow_slug', run.flow_slug,
      'status', 'failed',
      'error_message', p_error_message,
      'failed_at', now()
    ),
    'run:failed',
    concat('pgflow:run:', run.run_id),
    false
  )
  from pgflow.runs run
  where run.run_id = p_run_id;
end;
$$;

comment on function pgflow._send_failure_events(uuid, text, text) is
  'Internal. Send step:failed and run:failed with one error text, on the run''s topic.';
