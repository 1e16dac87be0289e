-- start_flow(flow_slug, input, run_id): start a run and everything in it that is ready.
-- Conditions come before taskless steps: a root map with an unmet condition and input [] is skipped.
-- Core behaviour: start_flow.

create function pgflow.start_flow(flow_slug text, input jsonb, run_id uuid default null)
returns setof pgflow.runs
language plpgsql
set search_path = ''
as $function$
declare
  v_run pgflow.runs%rowtype;
  v_root_map_tasks integer;
begin
  -- The array is what a root map runs over, so it must be one before anything is written.
  if exists (
    select
    from pgflow.steps as step
    where step.flow_slug = start_flow.flow_slug
      and step.step_type = 'map'
      and step.deps_count = 0
  ) then
    if start_flow.input is null then
      raise exception 'Flow % has root map steps but input is NULL', start_flow.flow_slug;
    end if;

    if jsonb_typeof(start_flow.input) <> 'array' then
      raise exception 'Flow % has root map steps but input is not an array (got %)',
        start_flow.flow_slug, jsonb_typeof(start_flow.input);
    end if;

    v_root_map_tasks := jsonb_array_length(start_flow.input);
  end if;

  insert into pgflow.runs (run_id, flow_slug, input, remaining_steps)
  values (
    coalesce(start_flow.run_id, gen_random_uuid()),
    start_flow.flow_slug,
    start_flow.input,
    (select count(*) from pgflow.steps as step where step.flow_slug = start_flow.flow_slug)
  )
  returning * into v_run;

  insert into pgflow.step_states (flow_slug, run_id, step_slug, remaining_deps, initial_tasks)
  select
    step.flow_slug,
    v_run.run_id,
    step.step_slug,
    step.deps_count,
    -- A dependent map learns its size when the step it depends on ends.
    case
      when step.step_type = 'single' then 1
      when step.deps_count = 0 then v_root_map_tasks
    end
  from pgflow.steps as step
  where step.flow_slug = start_flow.flow_slug;

  perform realtime.send(
    jsonb_build_object(
      'event_type', 'run:started',
      'run_id', v_run.run_id,
      'flow_slug', v_run.flow_slug,
      'input', v_run.input,
      'status', v_run.status,
      'remaining_steps', v_run.remaining_steps,
      'started_at', v_run.started_at
    ),
    'run:started',
    'pgflow:run:' || v_run.run_id,
    false
  );

  if pgflow.cascade_resolve_conditions(v_run.run_id) then
    perform pgflow.cascade_complete_taskless_steps(v_run.run_id);
    perform pgflow.start_ready_steps(v_run.run_id);
    perform pgflow.maybe_complete_run(v_run.run_id);
  end if;

  return query
  select run.*
  from pgflow.runs as run
  where run.run_id = v_run.run_id;
end
$function$;

comment on function pgflow.start_flow(text, jsonb, uuid) is
  'Starts a run of the flow; returns its row, which may already be completed or failed. Not idempotent.';
