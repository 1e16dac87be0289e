-- The conditions of the steps that are ready now, judged on what their dependencies have left.
create or replace function pgflow._unmet_conditions(p_run_id uuid)
returns table (step_slug text, step_index integer, when_unmet text)
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select step.step_slug, step.step_index, step.when_unmet
  from pgflow.step_states state
  join pgflow.runs run on run.run_id = state.run_id
  join pgflow.steps step on step.flow_slug = state.flow_slug and step.step_slug = state.step_slug
  cross join lateral (
    select case
      when step.deps_count = 0 then run.input
      else coalesce(
        (
          select jsonb_object_agg(parent.step_slug, parent.output)
          from pgflow.deps dep
          join pgflow.step_states parent on parent.run_id = state.run_id and parent.step_slug = dep.dep_slug
          where dep.flow_slug = state.flow_slug
            and dep.step_slug = state.step_slug
            and parent.status = 'completed'
        ),
        '{}'::jsonb
      )
    end as input
  ) evaluated
  where state.run_id = p_run_id
    and state.status = 'created'
    and state.remaining_deps = 0
    and not (
      (step.required_input_pattern is null or evaluated.input @> step.required_input_pattern)
      and (step.forbidden_input_pattern is null or not evaluated.input @> step.forbidden_input_pattern)
    );
$$;

comment on function pgflow._unmet_conditions(uuid) is
  'Internal. The ready steps of a run whose condition is not met, with what to do about it ("fail", "skip", '
  '"skip-cascade"). A root step is tested against the run input, any other against its completed '
  'dependencies'' outputs.';
