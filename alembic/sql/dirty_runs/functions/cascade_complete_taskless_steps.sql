-- Ready steps without tasks are over before they start; wave by wave, since their dependents may have none either.
create or replace function pgflow.cascade_complete_taskless_steps(run_id uuid)
returns integer
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  max_waves constant integer := 50;
  waves integer := 0;
  completed_total integer := 0;
  completed_slugs text[];
  completed record;
begin
  loop
    waves := waves + 1;
    if waves > max_waves then
      raise exception 'Cascade loop exceeded safety limit of % iterations', max_waves;
    end if;

    with taskless as (
      update pgflow.step_states state
      set status = 'completed',
          started_at = now(),
          completed_at = now(),
          remaining_tasks = 0,
          output = case when step.step_type = 'map' then '[]'::jsonb end
      from pgflow.steps step
      where state.run_id = cascade_complete_taskless_steps.run_id
        and state.status = 'created'
        and state.remaining_deps = 0
        and state.initial_tasks = 0
        and not pgflow._speaks_protocol_2(state.run_id)
        and step.flow_slug = state.flow_slug
        and step.step_slug = state.step_slug
      returning state.step_slug
    )
    select coalesce(array_agg(taskless.step_slug), '{}') into completed_slugs from taskless;

    if cardinality(completed_slugs) = 0 then
      return completed_total;
    end if;
    completed_total := completed_total + cardinality(completed_slugs);

    for completed in
      select state.*
      from pgflow.step_states state
      join pgflow.steps step on step.flow_slug = state.flow_slug and step.step_slug = state.step_slug
      where state.run_id = cascade_complete_taskless_steps.run_id and state.step_slug = any (completed_slugs)
      order by step.step_index
    loop
      perform realtime.send(
        jsonb_build_object(
          'event_type', 'step:completed',
          'run_id', completed.run_id,
          'step_slug', completed.step_slug,
          'status', 'completed',
          'started_at', completed.started_at,
          'completed_at', completed.completed_at,
          'remaining_tasks', 0,
          'remaining_deps', 0,
          'output', completed.output
        ),
        concat('step:', completed.step_slug, ':completed'),
        concat('pgflow:run:', completed.run_id),
        false
      );
    end loop;

    update pgflow.step_states dependent
    set remaining_deps = dependent.remaining_deps - released.parents,
        initial_tasks = case when step.step_type = 'map' then 0 else dependent.initial_tasks end
    from (
      select dep.flow_slug, dep.step_slug, count(*)::integer as parents
      from pgflow.deps dep
      where dep.flow_slug = (
          select run.flow_slug from pgflow.runs run where run.run_id = cascade_complete_taskless_steps.run_id
        )
        and dep.dep_slug = any (completed_slugs)
      group by dep.flow_slug, dep.step_slug
    ) released
    join pgflow.steps step on step.flow_slug = released.flow_slug and step.step_slug = released.step_slug
    where dependent.run_id = cascade_complete_taskless_steps.run_id
      and dependent.step_slug = released.step_slug;

    update pgflow.runs run
    set remaining_steps = run.remaining_steps - cardinality(completed_slugs)
    where run.run_id = cascade_complete_taskless_steps.run_id;
  end loop;
end;
$$;

comment on function pgflow.cascade_complete_taskless_steps(uuid) is
  'Complete every ready step of a run that has no tasks (a map over nothing), and those that this makes '
  'ready and taskless in turn. Returns how many. P0001 when a 50th wave still finds one.';
