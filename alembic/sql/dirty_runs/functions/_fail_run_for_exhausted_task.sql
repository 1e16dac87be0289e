-- when_exhausted = 'fail': step and run fail, the rest of the run is cancelled.
create or replace function pgflow._fail_run_for_exhausted_task(p_run_id uuid, p_step_slug text, p_error_message text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgflow._require_protocol_1(p_run_id);
  update pgflow.step_states state
  set status = 'failed', failed_at = now(), error_message = p_error_message
  where state.run_id = p_run_id and state.step_slug = p_step_slug;

  update pgflow.runs run set status = 'failed', failed_at = now() where run.run_id = p_run_id;

  perform pgflow._send_failure_events(p_run_id, p_step_slug, p_error_message);
  perform pgflow._end_unfinished_tasks(p_run_id, null, 'cancelled');
end;
$$;

comment on function pgflow._fail_run_for_exhausted_task(uuid, text, text) is
  'Internal, called by fail_task under the locks of run and step, after the task has failed: step and run '
  'fail, the events are sent, every unfinished task is cancelled and its message archived.';
