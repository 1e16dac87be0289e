-- One task less for the step; with the last one the step is completed and its dependents learn of it.
create or replace function pgflow._complete_step_if_last_task(
  p_state pgflow.step_states, p_step pgflow.steps, p_output jsonb
)
returns boolean
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  step_output jsonb;
  task_count integer;
begin
  if pgflow._speaks_protocol_2(p_state.run_id) then
    perform pgflow._require_protocol_1(p_state.run_id);
  end if;
  if p_state.remaining_tasks > 1 then
    update pgflow.step_states state
    set remaining_tasks = state.remaining_tasks - 1
    where state.run_id = p_state.run_id and state.step_slug = p_state.step_slug;
    return false;
  end if;

  if p_step.step_type = 'map' then
    select jsonb_agg(task.output order by task.task_index), count(*)
    into step_output, task_count
    from pgflow.step_tasks task
    where task.run_id = p_state.run_id and task.step_slug = p_state.step_slug and task.status = 'completed';
  else
    step_output := p_output;
    if jsonb_typeof(p_output) = 'array' then
      task_count := jsonb_array_length(p_output);
    end if;
  end if;

  update pgflow.step_states state
  set status = 'completed', completed_at = now(), remaining_tasks = 0, output = step_output
  where state.run_id = p_state.run_id and state.step_slug = p_state.step_slug;

  update pgflow.step_states dependent
  set remaining_deps = dependent.remaining_deps - 1,
      initial_tasks = case
        when step.step_type = 'map' and dependent.initial_tasks is null then task_count
        else dependent.initial_tasks
      end
  from pgflow.deps dep
  join pgflow.steps step on step.flow_slug = dep.flow_slug and step.step_slug = dep.step_slug
  where dep.flow_slug = p_state.flow_slug
    and dep.dep_slug = p_state.step_slug
    and dependent.run_id = p_state.run_id
    and dependent.step_slug = dep.step_slug;

  update pgflow.runs run
  set remaining_steps = run.remaining_steps - 1
  where run.run_id = p_state.run_id;

  perform realtime.send(
    jsonb_build_object(
      'event_type', 'step:completed',
      'run_id', p_state.run_id,
      'step_slug', p_state.step_slug,
      'status', 'completed',
      'output', step_output,
      'completed_at', now()
    ),
    concat('step:', p_state.step_slug, ':completed'),
    concat('pgflow:run:', p_state.run_id),
    false
  );
  return true;
end;
$$;

comment on function pgflow._complete_step_if_last_task(pgflow.step_states, pgflow.steps, jsonb) is
  'Internal, called by complete_task under the locks of run and step. Counts one task down; with the last '
  'one completes the step (a map''s output is the array of its tasks'' outputs), updates dependents and '
  'run, sends step:completed, and returns true.';
