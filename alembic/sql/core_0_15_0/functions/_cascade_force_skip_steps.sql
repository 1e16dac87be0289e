-- _cascade_force_skip_steps(run_id, step_slug, skip_reason): skip a step and all that depends on it, however
-- far down.
-- 0.15.0: the messages of unfinished tasks are archived, the task rows stay queued or started.
-- Core behaviour: _cascade_force_skip_steps.

create function pgflow._cascade_force_skip_steps(run_id uuid, step_slug text, skip_reason text)
returns integer
language plpgsql
as $function$
declare
  v_flow_slug text;
  v_skipped text[];
  v_message_ids bigint[];
begin
  select run.flow_slug
  into v_flow_slug
  from pgflow.runs as run
  where run.run_id = _cascade_force_skip_steps.run_id;

  if not found then
    raise exception 'Run not found: %', _cascade_force_skip_steps.run_id;
  end if;

  with recursive target (step_slug) as (
    select _cascade_force_skip_steps.step_slug
    union
    select dep.step_slug
    from target
    join pgflow.deps as dep
      on dep.flow_slug = v_flow_slug
      and dep.dep_slug = target.step_slug
  ),
  skipped as (
    update pgflow.step_states as state
    set status = 'skipped',
        skip_reason = case
          when state.step_slug = _cascade_force_skip_steps.step_slug
            then _cascade_force_skip_steps.skip_reason
          else 'dependency_skipped'
        end,
        skipped_at = now(),
        remaining_tasks = null
    from target
    where state.run_id = _cascade_force_skip_steps.run_id
      and state.step_slug = target.step_slug
      and state.status in ('created', 'started')
    returning state.step_slug
  )
  select array_agg(skipped.step_slug)
  into v_skipped
  from skipped;

  if v_skipped is null then
    return 0;
  end if;

  -- Parents have a lower index than their dependents, so they are announced first.
  perform realtime.send(
    jsonb_build_object(
      'event_type', 'step:skipped',
      'run_id', state.run_id,
      'flow_slug', state.flow_slug,
      'step_slug', state.step_slug,
      'status', state.status,
      'skip_reason', state.skip_reason,
      'skipped_at', state.skipped_at
    ),
    'step:' || state.step_slug || ':skipped',
    'pgflow:run:' || state.run_id,
    false
  )
  from pgflow.step_states as state
  join pgflow.steps as step
    on step.flow_slug = state.flow_slug
    and step.step_slug = state.step_slug
  where state.run_id = _cascade_force_skip_steps.run_id
    and state.step_slug = any (v_skipped)
  order by step.step_index;

  select array_agg(task.message_id)
  into v_message_ids
  from pgflow.step_tasks as task
  where task.run_id = _cascade_force_skip_steps.run_id
    and task.step_slug = any (v_skipped)
    and task.status in ('queued', 'started')
    and task.message_id is not null;

  if v_message_ids is not null then
    perform pgmq.archive(v_flow_slug, v_message_ids);
  end if;

  update pgflow.runs as run
  set remaining_steps = run.remaining_steps - cardinality(v_skipped)
  where run.run_id = _cascade_force_skip_steps.run_id;

  return cardinality(v_skipped);
end
$function$;

comment on function pgflow._cascade_force_skip_steps(uuid, text, text) is
  'Skips the step and its dependents, direct or not, where created or started; returns how many.';
