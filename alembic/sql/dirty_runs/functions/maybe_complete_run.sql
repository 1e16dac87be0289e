-- The last step takes the run with it.
create or replace function pgflow.maybe_complete_run(run_id uuid)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  completed pgflow.runs;
begin
  update pgflow.runs run
  set status = 'completed',
      completed_at = now(),
      output = (
        select jsonb_object_agg(state.step_slug, state.output)
        from pgflow.step_states state
        where state.run_id = run.run_id
          and state.status = 'completed'
          and not exists (
            select from pgflow.deps dep
            where dep.flow_slug = run.flow_slug and dep.dep_slug = state.step_slug
          )
      )
  where run.run_id = maybe_complete_run.run_id
    and run.remaining_steps = 0
    and run.status = 'started'
    and not pgflow._speaks_protocol_2(run.run_id)
  returning run.* into completed;

  if found then
    perform realtime.send(
      jsonb_build_object(
        'event_type', 'run:completed',
        'run_id', completed.run_id,
        'flow_slug', completed.flow_slug,
        'status', 'completed',
        'output', completed.output,
        'completed_at', completed.completed_at
      ),
      'run:completed',
      concat('pgflow:run:', completed.run_id),
      false
    );
  end if;
end;
$$;

comment on function pgflow.maybe_complete_run(uuid) is
  'Complete a run that has no remaining steps; its output has a key for each completed step that no other '
  'depends on, NULL if there is none. Otherwise, and on a run that is over already or of another protocol, '
  'nothing happens.';
