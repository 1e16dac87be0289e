-- A new run: states for every step, conditions, steps without tasks, the first messages. All or nothing.
create or replace function pgflow.start_flow(flow_slug text, input jsonb, run_id uuid default null)
returns setof pgflow.runs
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  started pgflow.runs;
  element_count integer;
begin
  if exists (
    select from pgflow.steps step
    where step.flow_slug = start_flow.flow_slug and step.step_type = 'map' and step.deps_count = 0
  ) then
    if start_flow.input is null then
      raise exception 'Flow % has root map steps but input is NULL', start_flow.flow_slug;
    elsif jsonb_typeof(start_flow.input) <> 'array' then
      raise exception 'Flow % has root map steps but input is not an array (got %)',
        start_flow.flow_slug, jsonb_typeof(start_flow.input);
    end if;
  end if;

  -- Not inside the query: its plan may evaluate the length of a constant input that is no array.
  if jsonb_typeof(start_flow.input) = 'array' then
    element_count := jsonb_array_length(start_flow.input);
  end if;

  insert into pgflow.runs as run (run_id, flow_slug, input, remaining_steps)
  values (
    coalesce(start_flow.run_id, gen_random_uuid()),
    start_flow.flow_slug,
    start_flow.input,
    (select count(*) from pgflow.steps step where step.flow_slug = start_flow.flow_slug)
  )
  returning run.* into started;

  insert into pgflow.step_states (flow_slug, run_id, step_slug, remaining_deps, initial_tasks)
  select
    step.flow_slug,
    started.run_id,
    step.step_slug,
    step.deps_count,
    case
      when step.step_type = 'single' then 1
      when step.deps_count = 0 then element_count
    end
  from pgflow.steps step
  where step.flow_slug = start_flow.flow_slug;

  perform realtime.send(
    jsonb_build_object(
      'event_type', 'run:started',
      'run_id', started.run_id,
      'flow_slug', started.flow_slug,
      'input', started.input,
      'status', started.status,
      'remaining_steps', started.remaining_steps,
      'started_at', started.started_at
    ),
    'run:started',
    concat('pgflow:run:', started.run_id),
    false
  );

  if pgflow.cascade_resolve_conditions(started.run_id) then
    perform pgflow.cascade_complete_taskless_steps(started.run_id);
    perform pgflow.start_ready_steps(started.run_id);
    perform pgflow.maybe_complete_run(started.run_id);
  end if;

  return query select run.* from pgflow.runs run where run.run_id = started.run_id;
end;
$$;

comment on function pgflow.start_flow(text, jsonb, uuid) is
  'Start a run of a flow and return it as it is at the end of the call. P0001 when the flow has root maps '
  'and the input is no array; 23503 for an unknown flow; 23505 for a run_id that exists; 23502 for NULL '
  'input.';
