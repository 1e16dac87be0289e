-- complete_task(run_id, step_slug, task_index, output): a handler succeeded.
-- Late and repeated calls change nothing: the first stored output stays.
-- 0.15.1: looks again whether the run failed while this call waited for its row; a type violation cancels all
-- other unfinished tasks of the run, and writes its task before it touches messages.
-- Core behaviour: complete_task.

create or replace function pgflow.complete_task(run_id uuid, step_slug text, task_index integer, output jsonb)
returns setof pgflow.step_tasks
language plpgsql
set search_path = ''
as $function$
declare
  v_run pgflow.runs%rowtype;
  v_state pgflow.step_states%rowtype;
  v_step_type text;
  v_map_slug text;
  v_output_type text := coalesce(jsonb_typeof(complete_task.output), 'null');
  v_last_task boolean;
  v_step_output jsonb;
  v_map_tasks integer;
  v_message_id bigint;
  v_message_ids bigint[];
begin
  <<change>>
  begin
    exit change when exists (
      select
      from pgflow.runs as run
      where run.run_id = complete_task.run_id
        and run.status = 'failed'
    );

    -- The run's row serialises all callbacks of the run. Every path locks run before step before tasks.
    select run.*
    into v_run
    from pgflow.runs as run
    where run.run_id = complete_task.run_id
    for update;

    select state.*
    into v_state
    from pgflow.step_states as state
    where state.run_id = complete_task.run_id
      and state.step_slug = complete_task.step_slug
    for update;

    if v_run.status = 'failed' or v_state.status is distinct from 'started' then
      perform pgflow._archive_task_message(
        complete_task.run_id, complete_task.step_slug, complete_task.task_index
      );
      exit change;
    end if;

    select step.step_type
    into v_step_type
    from pgflow.steps as step
    where step.flow_slug = v_state.flow_slug
      and step.step_slug = v_state.step_slug;

    -- A map that waits for this step needs an array. The task itself is not looked at: as released.
    if v_step_type = 'single' and v_output_type <> 'array' then
      select dependent.step_slug
      into v_map_slug
      from pgflow.deps as dep
      join pgflow.steps as dependent
        on dependent.flow_slug = dep.flow_slug
        and dependent.step_slug = dep.step_slug
        and dependent.step_type = 'map'
      join pgflow.step_states as dependent_state
        on dependent_state.run_id = v_run.run_id
        and dependent_state.step_slug = dep.step_slug
        and dependent_state.initial_tasks is null
      where dep.flow_slug = v_state.flow_slug
        and dep.dep_slug = v_state.step_slug
      limit 1;
    end if;

    if v_map_slug is not null then
      update pgflow.step_tasks as task
      set status = 'failed',
          failed_at = now(),
          output = complete_task.output,
          error_message = format('[TYPE_VIOLATION] Produced %s instead of array', v_output_type)
      where task.run_id = v_run.run_id
        and task.step_slug = v_state.step_slug
        and task.task_index = complete_task.task_index
      returning task.message_id into v_message_id;

      update pgflow.runs as run
      set status = 'failed',
          failed_at = now()
      where run.run_id = v_run.run_id
      returning run.* into v_run;

      perform realtime.send(
        jsonb_build_object(
          'event_type', 'run:failed',
          'run_id', v_run.run_id,
          'flow_slug', v_run.flow_slug,
          'status', v_run.status,
          'failed_at', v_run.failed_at
        ),
        'run:failed',
        'pgflow:run:' || v_run.run_id,
        false
      );

      update pgflow.step_states as state
      set status = 'failed',
          failed_at = now(),
          error_message = format(
            '[TYPE_VIOLATION] Map step %s expects array input but dependency %s produced %s',
            v_map_slug, v_state.step_slug, v_output_type
          )
      where state.run_id = v_run.run_id
        and state.step_slug = v_state.step_slug
      returning state.* into v_state;

      perform realtime.send(
        jsonb_build_object(
          'event_type', 'step:failed',
          'run_id', v_state.run_id,
          'step_slug', v_state.step_slug,
          'status', v_state.status,
          'error_message', v_state.error_message,
          'failed_at', v_state.failed_at
        ),
        'step:' || v_state.step_slug || ':failed',
        'pgflow:run:' || v_run.run_id,
        false
      );

      with ended as (
        update pgflow.step_tasks as task
        set status = 'cancelled'
        where task.run_id = v_run.run_id
          and task.status in ('queued', 'started')
        returning task.message_id
      )
      select array_agg(ended.message_id)
      into v_message_ids
      from ended
      where ended.message_id is not null;

      if v_message_id is not null then
        v_message_ids := v_message_ids || v_message_id;
      end if;

      if v_message_ids is not null then
        perform pgmq.archive(v_run.flow_slug, v_message_ids);
      end if;

      exit change;
    end if;

    update pgflow.step_tasks as task
    set status = 'completed',
        completed_at = now(),
        output = complete_task.output
    where task.run_id = v_run.run_id
      and task.step_slug = v_state.step_slug
      and task.task_index = complete_task.task_index
      and task.status = 'started';

    v_last_task := found and v_state.remaining_tasks = 1;

    if found and not v_last_task then
      update pgflow.step_states as state
      set remaining_tasks = state.remaining_tasks - 1
      where state.run_id = v_run.run_id
        and state.step_slug = v_state.step_slug;
    end if;

    if v_last_task then
      if v_step_type = 'map' then
        select jsonb_agg(task.output order by task.task_index)
        into v_step_output
        from pgflow.step_tasks as task
        where task.run_id = v_run.run_id
          and task.step_slug = v_state.step_slug
          and task.status = 'completed';
      else
        v_step_output := complete_task.output;
      end if;

      update pgflow.step_states as state
      set status = 'completed',
          completed_at = now(),
          remaining_tasks = 0,
          output = v_step_output
      where state.run_id = v_run.run_id
        and state.step_slug = v_state.step_slug
      returning state.* into v_state;

      -- A dependent map that does not know its size yet runs over this output, which then is an array.
      if jsonb_typeof(v_step_output) = 'array' then
        v_map_tasks := jsonb_array_length(v_step_output);
      end if;

      update pgflow.step_states as dependent
      set remaining_deps = dependent.remaining_deps - 1,
          initial_tasks = case
            when step.step_type = 'map' and dependent.initial_tasks is null then v_map_tasks
            else dependent.initial_tasks
          end
      from pgflow.deps as dep
      join pgflow.steps as step
        on step.flow_slug = dep.flow_slug
        and step.step_slug = dep.step_slug
      where dep.flow_slug = v_state.flow_slug
        and dep.dep_slug = v_state.step_slug
        and dependent.run_id = v_run.run_id
        and dependent.step_slug = dep.step_slug;

      update pgflow.runs as run
      set remaining_steps = run.remaining_steps - 1
      where run.run_id = v_run.run_id;

      perform realtime.send(
        jsonb_build_object(
          'event_type', 'step:completed',
          'run_id', v_state.run_id,
          'step_slug', v_state.step_slug,
          'status', v_state.status,
          'output', v_state.output,
          'completed_at', v_state.completed_at
        ),
        'step:' || v_state.step_slug || ':completed',
        'pgflow:run:' || v_run.run_id,
        false
      );

      if not pgflow.cascade_resolve_conditions(v_run.run_id) then
        perform pgflow._archive_task_message(v_run.run_id, v_state.step_slug, complete_task.task_index);
        exit change;
      end if;

      perform pgflow.cascade_complete_taskless_steps(v_run.run_id);
    end if;

    -- A task that is queued keeps its message: it will be claimed again.
    if exists (
      select
      from pgflow.step_tasks as task
      where task.run_id = v_run.run_id
        and task.step_slug = v_state.step_slug
        and task.task_index = complete_task.task_index
        and task.status = 'completed'
    ) then
      perform pgflow._archive_task_message(v_run.run_id, v_state.step_slug, complete_task.task_index);
    end if;

    perform pgflow.start_ready_steps(v_run.run_id);
    perform pgflow.maybe_complete_run(v_run.run_id);
  end change;

  return query
  select task.*
  from pgflow.step_tasks as task
  where task.run_id = complete_task.run_id
    and task.step_slug = complete_task.step_slug
    and task.task_index = complete_task.task_index;
end
$function$;

comment on function pgflow.complete_task(uuid, text, integer, jsonb) is
  'Completes a started task with its output, and what follows from it; returns the task as it then is.';
