-- One step is started: its state, its one task, its message, together. The caller holds the run's lock and knows that
-- the step is ready. The start delay counts from here, once.
create or replace function pgflow._v2_dispatch_step(p_run_id uuid, p_step_slug text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  state pgflow.step_states;
  step pgflow.steps;
  sent_id bigint;
begin
  -- Also for who calls this by itself: no run of another protocol, and none that is over.
  if not exists (
    select
    from pgflow.runs run
    join pgflow.run_work work on work.run_id = run.run_id
    where run.run_id = p_run_id and run.status = 'started'
  ) then
    raise exception 'run % is not a started one of protocol 2', p_run_id
      using errcode = 'PF005', hint = 'Nothing was changed.';
  end if;

  update pgflow.step_states s
  set status = 'started',
      -- A chunk's transaction may be older than the run.
      started_at = greatest(clock_timestamp(), s.created_at),
      remaining_deps = 0,
      remaining_tasks = 1
  where s.run_id = p_run_id and s.step_slug = p_step_slug and s.status = 'created'
  returning s.* into strict state;

  select s.* into strict step
  from pgflow.steps s
  where s.flow_slug = state.flow_slug and s.step_slug = state.step_slug;

  select sent into strict sent_id
  from pgmq.send(
    step.queue_name,
    jsonb_build_object(
      'flow_slug', state.flow_slug, 'run_id', state.run_id, 'step_slug', state.step_slug, 'task_index', 0
    ),
    coalesce(step.opt_start_delay, 0)
  ) as sent;

  insert into pgflow.step_tasks (flow_slug, run_id, step_slug, task_index, queued_at, message_id, queue_name)
  values (state.flow_slug, state.run_id, state.step_slug, 0, state.started_at, sent_id, step.queue_name);

  perform pgflow._v2_send_hint(p_run_id, 'step:started', jsonb_build_object(
    'step_slug', state.step_slug, 'status', 'started', 'started_at', state.started_at,
    'remaining_tasks', 1, 'remaining_deps', 0
  ));
end;
$$;

comment on function pgflow._v2_dispatch_step(uuid, text) is
  'Internal, under the run''s lock. Start a step that is "created": state, one queued task, one message to '
  'steps.queue_name with the step''s start delay. P0002 when the step is not "created"; PF005 when the run is not a '
  'started one of protocol 2.';
