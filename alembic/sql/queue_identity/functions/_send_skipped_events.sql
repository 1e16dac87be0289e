-- step:skipped, parents before their dependents (step_index is topological).
create or replace function pgflow._send_skipped_events(p_run_id uuid, p_step_slugs text[])
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  skipped record;
begin
  for skipped in
    select state.run_id, state.flow_slug, state.step_slug, state.status, state.skip_reason, state.skipped_at
    from pgflow.step_states state
    join pgflow.steps step on step.flow_slug = state.flow_slug and step.step_slug = state.step_slug
    where state.run_id = p_run_id and state.step_slug = any (p_step_slugs)
    order by step.step_index
  loop
    perform realtime.send(
      jsonb_build_object(
        'event_type', 'step:skipped',
        'run_id', skipped.run_id,
        'flow_slug', skipped.flow_slug,
        'step_slug', skipped.step_slug,
        'status', skipped.status,
        'skip_reason', skipped.skip_reason,
        'skipped_at', skipped.skipped_at
      ),
      concat('step:', skipped.step_slug, ':skipped'),
      concat('pgflow:run:', skipped.run_id),
      false
    );
  end loop;
end;
$$;

comment on function pgflow._send_skipped_events(uuid, text[]) is
  'Internal. Send step:skipped for the given steps of a run, in the order of their definition.';
