-- A task has succeeded. Locks: run, step state, task, dependents' states, queue.
create or replace function pgflow.complete_task(run_id uuid, step_slug text, task_index integer, output jsonb)
returns setof pgflow.step_tasks
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  run pgflow.runs;
  seen_at timestamptz;
  state pgflow.step_states;
  step pgflow.steps;
  produced constant text := coalesce(jsonb_typeof(complete_task.output), 'null');
  starved_map text;
begin
  <<callback>>
  begin
    -- Cheap way out before any lock; looked at again below, under the locks.
    select r.* into run from pgflow.runs r where r.run_id = complete_task.run_id;
    seen_at := run.started_at;
    if pgflow._speaks_protocol_2(complete_task.run_id) then
      perform pgflow._require_protocol_1(complete_task.run_id);
    end if;
    exit callback when run.status = 'failed';

    select r.* into run from pgflow.runs r where r.run_id = complete_task.run_id for update;
    select s.* into state
    from pgflow.step_states s
    where s.run_id = complete_task.run_id and s.step_slug = complete_task.step_slug
    for update;
    exit callback when state.run_id is null;
    -- A run that has begun since the first look, under a new id or one that is used again, may be of either protocol.
    if run.started_at is distinct from seen_at then
      perform pgflow._require_protocol_1(complete_task.run_id);
    end if;

    -- A late callback: the run failed while we waited, or the step is no longer running.
    if run.status = 'failed' or state.status <> 'started' then
      perform pgflow._archive_task_message(complete_task.run_id, complete_task.step_slug, complete_task.task_index);
      exit callback;
    end if;

    select s.* into step
    from pgflow.steps s
    where s.flow_slug = state.flow_slug and s.step_slug = state.step_slug;

    -- A map that waits for this step's output needs an array; anything else fails the run.
    if step.step_type = 'single' and produced <> 'array' then
      select dependent.step_slug into starved_map
      from pgflow.deps dep
      join pgflow.steps dependent on dependent.flow_slug = dep.flow_slug and dependent.step_slug = dep.step_slug
      join pgflow.step_states waiting on waiting.run_id = state.run_id and waiting.step_slug = dep.step_slug
      where dep.flow_slug = state.flow_slug
        and dep.dep_slug = state.step_slug
        and dependent.step_type = 'map'
        and waiting.initial_tasks is null
      order by dependent.step_index
      limit 1;
      if starved_map is not null then
        perform pgflow._fail_run_for_type_violation(
          complete_task.run_id, complete_task.step_slug, complete_task.task_index, complete_task.output,
          format('[TYPE_VIOLATION] Produced %s instead of array', produced),
          format(
            '[TYPE_VIOLATION] Map step %s expects array input but dependency %s produced %s',
            starved_map, complete_task.step_slug, produced
          )
        );
        exit callback;
      end if;
    end if;

    update pgflow.step_tasks task
    set status = 'completed',
        -- Not before the start: while this call waited, the task may have been requeued and claimed anew.
        completed_at = greatest(now(), task.started_at),
        output = complete_task.output
    where task.run_id = complete_task.run_id
      and task.step_slug = complete_task.step_slug
      and task.task_index = complete_task.task_index
      and task.status = 'started';

    if found and pgflow._complete_step_if_last_task(state, step, complete_task.output) then
      if not pgflow.cascade_resolve_conditions(complete_task.run_id) then
        perform pgflow._archive_task_message(complete_task.run_id, complete_task.step_slug, complete_task.task_index);
        exit callback;
      end if;
      perform pgflow.cascade_complete_taskless_steps(complete_task.run_id);
    end if;

    -- A task that is merely queued (requeued, say) keeps its message: somebody will claim it again.
    perform pgmq.archive(task.queue_name, task.message_id)
    from pgflow.step_tasks task
    where task.run_id = complete_task.run_id
      and task.step_slug = complete_task.step_slug
      and task.task_index = complete_task.task_index
      and task.message_id is not null
      and task.status <> 'queued';

    perform pgflow.start_ready_steps(complete_task.run_id);
    perform pgflow.maybe_complete_run(complete_task.run_id);
  end callback;

  return query
    select task.*
    from pgflow.step_tasks task
    where task.run_id = complete_task.run_id
      and task.step_slug = complete_task.step_slug
      and task.task_index = complete_task.task_index;
end;
$$;

comment on function pgflow.complete_task(uuid, text, integer, jsonb) is
  'Record a started task''s output, and carry the run on. Late, repeated and unknown calls change nothing '
  'but archive the message of a task that is over. A non-array output under a map that waits for it fails '
  'the run. Returns the task as it is at the end, or no row. PF005 for a run of another protocol.';
