-- start_ready_steps(run_id): start every ready step that has tasks: event, messages, task rows.
-- Steps go in ascending slug and tasks in ascending index, so that message ids do too.
-- Does not look at conditions and does not complete empty maps: callers did that before.
-- Core behaviour: start_ready_steps; PGMQ message body.

create function pgflow.start_ready_steps(run_id uuid)
returns void
language plpgsql
set search_path = ''
as $function$
declare
  v_step record;
begin
  if exists (
    select
    from pgflow.runs as run
    where run.run_id = start_ready_steps.run_id
      and run.status in ('failed', 'completed')
  ) then
    return;
  end if;

  for v_step in
    with ready as (
      select state.step_slug
      from pgflow.step_states as state
      where state.run_id = start_ready_steps.run_id
        and state.status = 'created'
        and state.remaining_deps = 0
        and state.initial_tasks > 0
      order by state.step_slug
      for update
    ),
    started as (
      update pgflow.step_states as state
      set status = 'started',
          started_at = now(),
          remaining_tasks = state.initial_tasks
      from ready
      where state.run_id = start_ready_steps.run_id
        and state.step_slug = ready.step_slug
      returning state.*
    )
    select started.*, coalesce(step.opt_start_delay, 0) as start_delay
    from started
    join pgflow.steps as step
      on step.flow_slug = started.flow_slug
      and step.step_slug = started.step_slug
    order by started.step_slug
  loop
    perform realtime.send(
      jsonb_build_object(
        'event_type', 'step:started',
        'run_id', v_step.run_id,
        'step_slug', v_step.step_slug,
        'status', v_step.status,
        'started_at', v_step.started_at,
        'remaining_tasks', v_step.remaining_tasks,
        'remaining_deps', v_step.remaining_deps
      ),
      'step:' || v_step.step_slug || ':started',
      'pgflow:run:' || v_step.run_id,
      false
    );

    -- One batch a step. PGMQ returns the ids in the order of the messages.
    insert into pgflow.step_tasks (flow_slug, run_id, step_slug, message_id, task_index)
    select v_step.flow_slug, v_step.run_id, v_step.step_slug, sent.msg_id, sent.number - 1
    from pgmq.send_batch(
      v_step.flow_slug,
      (
        select array_agg(
          jsonb_build_object(
            'flow_slug', v_step.flow_slug,
            'run_id', v_step.run_id,
            'step_slug', v_step.step_slug,
            'task_index', task_index
          )
          order by task_index
        )
        from generate_series(0, v_step.initial_tasks - 1) as task_index
      ),
      v_step.start_delay
    ) with ordinality as sent (msg_id, number);
  end loop;
end
$function$;

comment on function pgflow.start_ready_steps(uuid) is
  'Starts the run''s ready steps that have tasks: sends a message for each task and inserts it as queued.';
