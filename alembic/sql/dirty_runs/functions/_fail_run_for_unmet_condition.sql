-- when_unmet = 'fail': the run first (only if it is still started), then step, events, tasks, messages.
create or replace function pgflow._fail_run_for_unmet_condition(p_run_id uuid, p_step_slug text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgflow._require_protocol_1(p_run_id);
  update pgflow.runs run
  set status = 'failed', failed_at = now()
  where run.run_id = p_run_id and run.status = 'started';
  if not found then
    return;
  end if;

  update pgflow.step_states state
  set status = 'failed', failed_at = now(), error_message = 'Condition not met'
  where state.run_id = p_run_id and state.step_slug = p_step_slug;

  perform pgflow._send_failure_events(p_run_id, p_step_slug, 'Condition not met');
  perform pgflow._end_unfinished_tasks(p_run_id, null, 'cancelled');
end;
$$;

comment on function pgflow._fail_run_for_unmet_condition(uuid, text) is
  'Internal, called by cascade_resolve_conditions: the run, if still started, and the step fail with '
  '"Condition not met", every unfinished task is cancelled and its message archived.';
