-- Ready steps are started: messages go to each step's queue, and each task keeps that queue's name for good.
-- No queue is created here.
create or replace function pgflow.start_ready_steps(run_id uuid)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  ready record;
begin
  if exists (
    select from pgflow.runs run
    where run.run_id = start_ready_steps.run_id and run.status in ('failed', 'completed')
  ) then
    return;
  end if;

  for ready in
    select
      state.flow_slug, state.run_id, state.step_slug, state.initial_tasks, state.remaining_deps,
      step.queue_name, coalesce(step.opt_start_delay, 0) as start_delay
    from pgflow.step_states state
    join pgflow.steps step on step.flow_slug = state.flow_slug and step.step_slug = state.step_slug
    where state.run_id = start_ready_steps.run_id
      and state.status = 'created'
      and state.remaining_deps = 0
      and state.initial_tasks > 0
      -- Asked of ready steps alone: most calls find none.
      and not pgflow._speaks_protocol_2(state.run_id)
    order by state.step_slug
    for update of state
  loop
    update pgflow.step_states state
    set status = 'started', started_at = now(), remaining_tasks = state.initial_tasks
    where state.run_id = ready.run_id and state.step_slug = ready.step_slug;

    perform realtime.send(
      jsonb_build_object(
        'event_type', 'step:started',
        'run_id', ready.run_id,
        'step_slug', ready.step_slug,
        'status', 'started',
        'started_at', now(),
        'remaining_tasks', ready.initial_tasks,
        'remaining_deps', ready.remaining_deps
      ),
      concat('step:', ready.step_slug, ':started'),
      concat('pgflow:run:', ready.run_id),
      false
    );

    insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index, message_id, queue_name)
    select ready.flow_slug, ready.run_id, ready.step_slug, sent.position - 1, sent.msg_id, ready.queue_name
    from pgmq.send_batch(
      ready.queue_name,
      array(
        select jsonb_build_object(
          'flow_slug', ready.flow_slug,
          'run_id', ready.run_id,
          'step_slug', ready.step_slug,
          'task_index', task.task_index
        )
        from generate_series(0, ready.initial_tasks - 1) as task (task_index)
        order by task.task_index
      ),
      ready.start_delay
    ) with ordinality as sent (msg_id, position);
  end loop;
end;
$$;

comment on function pgflow.start_ready_steps(uuid) is
  'Start every ready step of a run that has tasks: one batch of messages a step, sent to steps.queue_name '
  'with the step''s start delay, and one queued task a message that keeps the queue''s name. Nothing on a '
  'finished run, nor on one of another protocol.';
