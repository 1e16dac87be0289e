-- fail_task(run_id, step_slug, task_index, error_message): a handler failed: retry, or end the step.
-- 0.15.0: a run that failed while this call waited for its row is not noticed, and a started task of a
-- failed run still becomes failed; unfinished siblings lose their messages, their rows stay as they are.
-- Core behaviour: fail_task.

create function pgflow.fail_task(run_id uuid, step_slug text, task_index integer, error_message text)
returns setof pgflow.step_tasks
language plpgsql
set search_path = ''
as $function$
declare
  v_run pgflow.runs%rowtype;
  v_state pgflow.step_states%rowtype;
  v_task pgflow.step_tasks%rowtype;
  v_when_exhausted text;
  v_max_attempts integer;
  v_base_delay integer;
  v_was_started boolean;
  v_message_ids bigint[];
begin
  <<change>>
  begin
    if exists (
      select
      from pgflow.runs as run
      where run.run_id = fail_task.run_id
        and run.status = 'failed'
    ) then
      update pgflow.step_tasks as task
      set status = 'failed',
          failed_at = now(),
          error_message = fail_task.error_message
      where task.run_id = fail_task.run_id
        and task.step_slug = fail_task.step_slug
        and task.task_index = fail_task.task_index
        and task.status = 'started';

      if found then
        perform pgflow._archive_task_message(fail_task.run_id, fail_task.step_slug, fail_task.task_index);
      end if;
      exit change;
    end if;

    -- The run's row serialises all callbacks of the run. Every path locks run before step before tasks.
    select run.*
    into v_run
    from pgflow.runs as run
    where run.run_id = fail_task.run_id
    for update;

    select state.*
    into v_state
    from pgflow.step_states as state
    where state.run_id = fail_task.run_id
      and state.step_slug = fail_task.step_slug
    for update;

    if v_state.status is distinct from 'started' then
      perform pgflow._archive_task_message(fail_task.run_id, fail_task.step_slug, fail_task.task_index);
      exit change;
    end if;

    select
      step.when_exhausted,
      coalesce(step.opt_max_attempts, flow.opt_max_attempts),
      coalesce(step.opt_base_delay, flow.opt_base_delay)
    into v_when_exhausted, v_max_attempts, v_base_delay
    from pgflow.steps as step
    join pgflow.flows as flow on flow.flow_slug = step.flow_slug
    where step.flow_slug = v_state.flow_slug
      and step.step_slug = v_state.step_slug;

    update pgflow.step_tasks as task
    set status = case when task.attempts_count < v_max_attempts then 'queued' else 'failed' end,
        started_at = case when task.attempts_count < v_max_attempts then null else task.started_at end,
        failed_at = case when task.attempts_count < v_max_attempts then null else now() end,
        error_message = fail_task.error_message
    where task.run_id = v_run.run_id
      and task.step_slug = v_state.step_slug
      and task.task_index = fail_task.task_index
      and task.status = 'started'
    returning task.* into v_task;

    v_was_started := found;

    if not v_was_started then
      select task.*
      into v_task
      from pgflow.step_tasks as task
      where task.run_id = v_run.run_id
        and task.step_slug = v_state.step_slug
        and task.task_index = fail_task.task_index;
    end if;

    -- Retry. A task that was queued already has its message delayed too: as released.
    if v_task.status = 'queued' then
      update pgflow.step_states as state
      set error_message = null
      where state.run_id = v_run.run_id
        and state.step_slug = v_state.step_slug;

      if v_task.message_id is not null then
        perform pgmq.set_vt(
          v_run.flow_slug,
          v_task.message_id,
          pgflow.calculate_retry_delay(v_base_delay, v_task.attempts_count)
        );
      end if;
      exit change;
    end if;

    exit change when not v_was_started;

    if v_when_exhausted = 'fail' then
      update pgflow.step_states as state
      set status = 'failed',
          failed_at = now(),
          error_message = fail_task.error_message
      where state.run_id = v_run.run_id
        and state.step_slug = v_state.step_slug
      returning state.* into v_state;

      update pgflow.runs as run
      set status = 'failed',
          failed_at = now()
      where run.run_id = v_run.run_id
      returning run.* into v_run;

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

      perform realtime.send(
        jsonb_build_object(
          'event_type', 'run:failed',
          'run_id', v_run.run_id,
          'flow_slug', v_run.flow_slug,
          'status', v_run.status,
          'error_message', v_state.error_message,
          'failed_at', v_run.failed_at
        ),
        'run:failed',
        'pgflow:run:' || v_run.run_id,
        false
      );

      select array_agg(task.message_id)
      into v_message_ids
      from pgflow.step_tasks as task
      where task.run_id = v_run.run_id
        and task.status in ('queued', 'started')
        and task.message_id is not null;

      if v_message_ids is not null then
        perform pgmq.archive(v_run.flow_slug, v_message_ids);
      end if;

      perform pgflow._archive_task_message(v_run.run_id, v_state.step_slug, fail_task.task_index);
      exit change;
    end if;

    -- Both skip modes end the step. The run goes on, unless a condition then fails it.
    update pgflow.step_states as state
    set status = 'skipped',
        skip_reason = 'handler_failed',
        skipped_at = now(),
        error_message = fail_task.error_message,
        remaining_tasks = null
    where state.run_id = v_run.run_id
      and state.step_slug = v_state.step_slug
    returning state.* into v_state;

    update pgflow.runs as run
    set remaining_steps = run.remaining_steps - 1
    where run.run_id = v_run.run_id;

    select array_agg(task.message_id)
    into v_message_ids
    from pgflow.step_tasks as task
    where task.run_id = v_run.run_id
      and task.step_slug = v_state.step_slug
      and task.status in ('queued', 'started')
      and task.message_id is not null;

    if v_message_ids is not null then
      perform pgmq.archive(v_run.flow_slug, v_message_ids);
    end if;

    perform realtime.send(
      jsonb_build_object(
        'event_type', 'step:skipped',
        'run_id', v_state.run_id,
        'step_slug', v_state.step_slug,
        'status', v_state.status,
        'skip_reason', v_state.skip_reason,
        'error_message', v_state.error_message,
        'skipped_at', v_state.skipped_at
      ),
      'step:' || v_state.step_slug || ':skipped',
      'pgflow:run:' || v_run.run_id,
      false
    );

    if v_when_exhausted = 'skip-cascade' then
      perform pgflow._cascade_force_skip_steps(v_run.run_id, v_state.step_slug, 'handler_failed');
    else
      -- A map over a skipped step is empty.
      update pgflow.step_states as dependent
      set remaining_deps = dependent.remaining_deps - 1,
          initial_tasks = case
            when step.step_type = 'map' and step.deps_count = 1 then 0
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

      if not pgflow.cascade_resolve_conditions(v_run.run_id) then
        perform pgflow._archive_task_message(v_run.run_id, v_state.step_slug, fail_task.task_index);
        exit change;
      end if;

      perform pgflow.cascade_complete_taskless_steps(v_run.run_id);
      perform pgflow.start_ready_steps(v_run.run_id);
    end if;

    perform pgflow.maybe_complete_run(v_run.run_id);
    perform pgflow._archive_task_message(v_run.run_id, v_state.step_slug, fail_task.task_index);
  end change;

  return query
  select task.*
  from pgflow.step_tasks as task
  where task.run_id = fail_task.run_id
    and task.step_slug = fail_task.step_slug
    and task.task_index = fail_task.task_index;
end
$function$;

comment on function pgflow.fail_task(uuid, text, integer, text) is
  'Queues a started task again, or ends its step when attempts are used up; returns the task as it then is.';
