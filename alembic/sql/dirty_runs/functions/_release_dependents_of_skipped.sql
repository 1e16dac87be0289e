-- Skipped steps no longer hold their dependents back; a map over nothing has no tasks.
create or replace function pgflow._release_dependents_of_skipped(p_run_id uuid, p_step_slugs text[])
returns void
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  update pgflow.step_states dependent
  set remaining_deps = dependent.remaining_deps - released.parents,
      initial_tasks = case
        when step.step_type = 'map' and step.deps_count = 1 then 0
        else dependent.initial_tasks
      end
  from (
    select dep.flow_slug, dep.step_slug, count(*)::integer as parents
    from pgflow.deps dep
    where dep.flow_slug = (
        select run.flow_slug
        from pgflow.runs run
        where run.run_id = p_run_id
          and not pgflow._speaks_protocol_2(run.run_id)
      )
      and dep.dep_slug = any (p_step_slugs)
    group by dep.flow_slug, dep.step_slug
  ) released
  join pgflow.steps step on step.flow_slug = released.flow_slug and step.step_slug = released.step_slug
  where dependent.run_id = p_run_id
    and dependent.step_slug = released.step_slug;
$$;

comment on function pgflow._release_dependents_of_skipped(uuid, text[]) is
  'Internal. For each dependent of the given, just skipped steps: remaining_deps drops by the number of '
  'them among its parents, and a map with a single parent gets initial_tasks 0.';
