-- when_exhausted = 'skip' or 'skip-cascade': the step is skipped and the run goes on without it.
create or replace function pgflow._skip_step_for_exhausted_task(
  p_run_id uuid, p_step_slug text, p_error_message text, p_cascade boolean
)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform pgflow._require_protocol_1(p_run_id);
  update pgflow.step_states state
  set status = 'skipped',
      skip_reason = 'handler_failed',
      skipped_at = now(),
      error_message = p_error_message,
      remaining_tasks = null
  where state.run_id = p_run_id and state.step_slug = p_step_slug;

  update pgflow.runs run set remaining_steps = run.remaining_steps - 1 where run.run_id = p_run_id;

  perform pgflow._end_unfinished_tasks(p_run_id, array[p_step_slug], 'skipped');

  perform realtime.send(
    jsonb_build_object(
      'event_type', 'step:skipped',
      'run_id', p_run_id,
      'step_slug', p_step_slug,
      'status', 'skipped',
      'skip_reason', 'handler_failed',
      'error_message', p_error_message,
      'skipped_at', now()
    ),
    concat('step:', p_step_slug, ':skipped'),
    concat('pgflow:run:', p_run_id),
    false
  );

  if p_cascade then
    perform pgflow._cascade_force_skip_steps(p_run_id, p_step_slug, 'handler_failed');
  else
    perform pgflow._release_dependents_of_skipped(p_run_id, array[p_step_slug]);
    if not pgflow.cascade_resolve_conditions(p_run_id) then
      return;
    end if;
    perform pgflow.cascade_complete_taskless_steps(p_run_id);
    perform pgflow.start_ready_steps(p_run_id);
  end if;

  perform pgflow.maybe_complete_run(p_run_id);
end;
$$;

comment on function pgflow._skip_step_for_exhausted_task(uuid, text, text, boolean) is
  'Internal, called by fail_task under the locks of run and step, after the task has failed: the step is '
  'skipped with reason handler_failed, its unfinished tasks too. Dependents go on without it or, with '
  'p_cascade, are skipped as well.';
