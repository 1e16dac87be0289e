-- A step and all that depends on it are skipped. Locks: step states, tasks, queues, run.
create or replace function pgflow._cascade_force_skip_steps(run_id uuid, step_slug text, skip_reason text)
returns integer
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  run_flow text;
  newly_skipped text[];
  skipped_count integer;
begin
  perform pgflow._require_protocol_1(_cascade_force_skip_steps.run_id);
  select run.flow_slug into run_flow from pgflow.runs run where run.run_id = _cascade_force_skip_steps.run_id;
  if not found then
    raise exception 'Run not found: %', _cascade_force_skip_steps.run_id;
  end if;

  with recursive target as (
    select _cascade_force_skip_steps.step_slug as step_slug
    union
    select dep.step_slug
    from target
    join pgflow.deps dep on dep.dep_slug = target.step_slug
    where dep.flow_slug = run_flow
  ),
  skipped as (
    update pgflow.step_states state
    set status = 'skipped',
        skipped_at = now(),
        remaining_tasks = null,
        skip_reason = case
          when state.step_slug = _cascade_force_skip_steps.step_slug then _cascade_force_skip_steps.skip_reason
          else 'dependency_skipped'
        end
    from target
    where state.run_id = _cascade_force_skip_steps.run_id
      and state.step_slug = target.step_slug
      and state.status in ('created', 'started')
    returning state.step_slug, state.flow_slug
  )
  select array_agg(skipped.step_slug order by step.step_index), count(*)
  into newly_skipped, skipped_count
  from skipped
  join pgflow.steps step on step.flow_slug = skipped.flow_slug and step.step_slug = skipped.step_slug;

  if skipped_count = 0 then
    return 0;
  end if;

  perform pgflow._send_skipped_events(_cascade_force_skip_steps.run_id, newly_skipped);
  perform pgflow._end_unfinished_tasks(_cascade_force_skip_steps.run_id, newly_skipped, 'skipped');

  update pgflow.runs run
  set remaining_steps = run.remaining_steps - skipped_count
  where run.run_id = _cascade_force_skip_steps.run_id;

  return skipped_count;
end;
$$;

comment on function pgflow._cascade_force_skip_steps(uuid, text, text) is
  'Internal. Skip a step (with the given reason) and all its transitive dependents (dependency_skipped) '
  'that are not over yet: states, events, unfinished tasks, their messages, the run''s counter. Returns how '
  'many; P0001 for an unknown run, 0 for an unknown step.';
