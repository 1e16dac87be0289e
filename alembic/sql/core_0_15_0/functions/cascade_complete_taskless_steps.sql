-- cascade_complete_taskless_steps(run_id): complete ready steps that have no tasks, and those that this
-- makes ready, in waves.
-- Conditions are not looked at, also not those of steps that a wave makes ready: as released.
-- Core behaviour: cascade_complete_taskless_steps.

create function pgflow.cascade_complete_taskless_steps(run_id uuid)
returns integer
language plpgsql
as $function$
declare
  v_flow_slug text;
  v_waves integer := 0;
  v_completed text[];
  v_total integer := 0;
begin
  select run.flow_slug
  into v_flow_slug
  from pgflow.runs as run
  where run.run_id = cascade_complete_taskless_steps.run_id;

  loop
    v_waves := v_waves + 1;
    if v_waves > 50 then
      raise exception 'Cascade loop exceeded safety limit of 50 iterations';
    end if;

    with completed as (
      update pgflow.step_states as state
      set status = 'completed',
          started_at = now(),
          completed_at = now(),
          remaining_tasks = 0,
          output = case when step.step_type = 'map' then '[]'::jsonb end
      from pgflow.steps as step
      where state.run_id = cascade_complete_taskless_steps.run_id
        and state.status = 'created'
        and state.remaining_deps = 0
        and state.initial_tasks = 0
        and step.flow_slug = state.flow_slug
        and step.step_slug = state.step_slug
      returning state.step_slug
    )
    select array_agg(completed.step_slug)
    into v_completed
    from completed;

    exit when v_completed is null;

    perform realtime.send(
      jsonb_build_object(
        'event_type', 'step:completed',
        'run_id', state.run_id,
        'step_slug', state.step_slug,
        'status', state.status,
        'started_at', state.started_at,
        'completed_at', state.completed_at,
        'remaining_tasks', state.remaining_tasks,
        'remaining_deps', state.remaining_deps,
        'output', state.output
      ),
      'step:' || state.step_slug || ':completed',
      'pgflow:run:' || state.run_id,
      false
    )
    from pgflow.step_states as state
    where state.run_id = cascade_complete_taskless_steps.run_id
      and state.step_slug = any (v_completed);

    -- A map over an empty array is empty too.
    update pgflow.step_states as dependent
    set remaining_deps = dependent.remaining_deps - parents.completed,
        initial_tasks = case when step.step_type = 'map' then 0 else dependent.initial_tasks end
    from (
      select dep.step_slug, count(*) as completed
      from pgflow.deps as dep
      where dep.flow_slug = v_flow_slug
        and dep.dep_slug = any (v_completed)
      group by dep.step_slug
    ) as parents
    join pgflow.steps as step
      on step.flow_slug = v_flow_slug
      and step.step_slug = parents.step_slug
    where dependent.run_id = cascade_complete_taskless_steps.run_id
      and dependent.step_slug = parents.step_slug;

    update pgflow.runs as run
    set remaining_steps = run.remaining_steps - cardinality(v_completed)
    where run.run_id = cascade_complete_taskless_steps.run_id;

    v_total := v_total + cardinality(v_completed);
  end loop;

  return v_total;
end
$function$;

comment on function pgflow.cascade_complete_taskless_steps(uuid) is
  'Completes the run''s ready steps that have no tasks, wave by wave; returns how many.';
