-- start_flow_with_states(flow_slug, input, run_id): start a run and return it with its steps.
-- As before; new is the pinned search_path.

create or replace function pgflow.start_flow_with_states(flow_slug text, input jsonb, run_id uuid default null)
returns jsonb
language plpgsql
security definer
set search_path = pg_catalog, pg_temp
as $function$
declare
  v_run_id uuid;
begin
  select run.run_id
  into v_run_id
  from pgflow.start_flow(
    start_flow_with_states.flow_slug, start_flow_with_states.input, start_flow_with_states.run_id
  ) as run;

  return pgflow.get_run_with_states(v_run_id);
end
$function$;

comment on function pgflow.start_flow_with_states(text, jsonb, uuid) is
  'start_flow(), then get_run_with_states() of the new run.';
