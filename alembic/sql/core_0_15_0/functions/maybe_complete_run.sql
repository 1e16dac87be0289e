-- maybe_complete_run(run_id): complete the run when no step remains.
-- The output has a key for each completed leaf (a step nobody depends on); skipped leaves have none.
-- Core behaviour: maybe_complete_run.

create function pgflow.maybe_complete_run(run_id uuid)
returns void
language plpgsql
set search_path = ''
as $function$
declare
  v_run pgflow.runs%rowtype;
begin
  -- No guard against failed runs: a failing step is never subtracted, so none has zero remaining steps.
  update pgflow.runs as run
  set status = 'completed',
      completed_at = now(),
      output = (
        select jsonb_object_agg(state.step_slug, state.output)
        from pgflow.step_states as state
        where state.run_id = run.run_id
          and state.status = 'completed'
          and not exists (
            select
            from pgflow.deps as dep
            where dep.flow_slug = state.flow_slug
              and dep.dep_slug = state.step_slug
          )
      )
  where run.run_id = maybe_complete_run.run_id
    and run.remaining_steps = 0
    and run.status <> 'completed'
  returning run.* into v_run;

  if found then
    perform realtime.send(
      jsonb_build_object(
        'event_type', 'run:completed',
        'run_id', v_run.run_id,
        'flow_slug', v_run.flow_slug,
        'status', v_run.status,
        'output', v_run.output,
        'completed_at', v_run.completed_at
      ),
      'run:completed',
      'pgflow:run:' || v_run.run_id,
      false
    );
  end if;
end
$function$;

comment on function pgflow.maybe_complete_run(uuid) is
  'Completes the run, with the outputs of its leaf steps, once its remaining_steps is 0.';
