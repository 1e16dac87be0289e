-- Conditions of ready steps: one that must not be unmet fails the run, the others skip their steps, round by round,
-- since every skip may make more steps ready. The caller holds the run's row lock.
create or replace function pgflow.cascade_resolve_conditions(run_id uuid)
returns boolean
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  max_rounds constant integer := 50;
  rounds integer := 0;
  run_status text;
  blocking_step text;
  cascading record;
  skipped_slugs text[];
begin
  select run.status into run_status from pgflow.runs run where run.run_id = cascade_resolve_conditions.run_id;
  if run_status in ('failed', 'completed') then
    return run_status = 'completed';
  end if;

  loop
    rounds := rounds + 1;
    if rounds > max_rounds then
      raise exception 'cascade_resolve_conditions exceeded safety limit of % iterations', max_rounds;
    end if;

    -- As a rule no ready step has a condition, and one look is enough; _unmet_conditions() is planned anew each time.
    if not exists (
      select from pgflow.step_states state
      join pgflow.steps step on step.flow_slug = state.flow_slug and step.step_slug = state.step_slug
      where state.run_id = cascade_resolve_conditions.run_id
        and state.status = 'created'
        and state.remaining_deps = 0
        and (step.required_input_pattern is not null or step.forbidden_input_pattern is not null)
    ) then
      return true;
    end if;
    -- Conditions are none of protocol 2's. Asked only where something could be done.
    if pgflow._speaks_protocol_2(cascade_resolve_conditions.run_id)
      or not exists (select from pgflow._unmet_conditions(cascade_resolve_conditions.run_id))
    then
      return true;
    end if;

    select unmet.step_slug into blocking_step
    from pgflow._unmet_conditions(cascade_resolve_conditions.run_id) unmet
    where unmet.when_unmet = 'fail'
    order by unmet.step_index
    limit 1;
    if found then
      perform pgflow._fail_run_for_unmet_condition(cascade_resolve_conditions.run_id, blocking_step);
      return false;
    end if;

    with skipped as (
      update pgflow.step_states state
      set status = 'skipped', skip_reason = 'condition_unmet', skipped_at = now()
      from pgflow._unmet_conditions(cascade_resolve_conditions.run_id) unmet
      where unmet.when_unmet = 'skip'
        and state.run_id = cascade_resolve_conditions.run_id
        and state.step_slug = unmet.step_slug
      returning state.step_slug
    )
    select coalesce(array_agg(skipped.step_slug), '{}') into skipped_slugs from skipped;

    if cardinality(skipped_slugs) > 0 then
      perform pgflow._send_skipped_events(cascade_resolve_conditions.run_id, skipped_slugs);
      perform pgflow._release_dependents_of_skipped(cascade_resolve_conditions.run_id, skipped_slugs);
      update pgflow.runs run
      set remaining_steps = run.remaining_steps - cardinality(skipped_slugs)
      where run.run_id = cascade_resolve_conditions.run_id;
    end if;

    -- Sees what the plain skips above have made ready.
    for cascading in
      select unmet.step_slug
      from pgflow._unmet_conditions(cascade_resolve_conditions.run_id) unmet
      where unmet.when_unmet = 'skip-cascade'
      order by unmet.step_index
    loop
      perform pgflow._cascade_force_skip_steps(
        cascade_resolve_conditions.run_id, cascading.step_slug, 'condition_unmet'
      );
    end loop;

    -- A cascade makes nothing ready, so only plain skips call for another round.
    if cardinality(skipped_slugs) = 0 then
      return true;
    end if;
  end loop;
end;
$$;

comment on function pgflow.cascade_resolve_conditions(uuid) is
  'Judge the conditions of a run''s ready steps until no more is skipped. Returns false exactly when the '
  'run is failed, now or before; true otherwise, for an unknown run too. P0001 when a 51st round would be '
  'needed.';
