-- The synchronous end of a run: everything that is unfinished, at once, without any processor. The caller holds the
-- locks on run, work, step state and task. Rows are few: the envelope has two tasks.
create or replace function pgflow._v2_fail_run(p_run_id uuid, p_step_slug text, p_error text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  ended_at constant timestamptz := clock_timestamp();
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

  update pgflow.step_states state
  set status = 'failed', failed_at = greatest(ended_at, state.started_at), error_message = p_error
  where state.run_id = p_run_id and state.step_slug = p_step_slug;

  perform from pgflow.step_tasks task
  where task.run_id = p_run_id
  order by task.step_slug, task.task_index
  for update;
  update pgflow.step_tasks task
  set status = 'cancelled'
  where task.run_id = p_run_id and task.status in ('queued', 'started');
  update pgflow.task_claims claim
  set state = 'revoked', revoked_at = ended_at, revoked_reason = 'run_failed'
  where claim.run_id = p_run_id and claim.state = 'active';

  update pgflow.runs run
  set status = 'failed', failed_at = greatest(ended_at, run.started_at)
  where run.run_id = p_run_id;

  -- Nothing is left to reconcile. Attention is for a person, also now.
  update pgflow.run_work work
  set requested_generation = work.requested_generation + 1,
      processed_generation = work.requested_generation + 1,
      requested_at = null,
      state = case work.state when 'attention' then work.state else 'clean' end,
      failure_count = case work.state when 'attention' then work.failure_count else 0 end,
      next_attempt_at = null
  where work.run_id = p_run_id;

  perform pgmq.archive(task.queue_name, task.message_id)
  from (
    select t.queue_name, t.message_id
    from pgflow.step_tasks t
    where t.run_id = p_run_id
    order by t.queue_name, t.message_id
  ) task;

  perform pgflow._v2_send_hint(p_run_id, 'step:failed', jsonb_build_object(
    'step_slug', p_step_slug, 'status', 'failed', 'error_message', p_error, 'failed_at', ended_at
  ));
  perform pgflow._v2_send_hint(p_run_id, 'run:failed', jsonb_build_object(
    'flow_slug', run.flow_slug, 'status', 'failed', 'error_message', p_error, 'failed_at', run.failed_at
  ))
  from pgflow.runs run
  where run.run_id = p_run_id;
end;
$$;

comment on function pgflow._v2_fail_run(uuid, text, text) is
  'Internal, under the locks of run, work, step state and task. Step and run fail, unfinished tasks are cancelled, '
  'active claims revoked (run_failed), all messages of the run archived, the request counted and processed. PF005 when '
  'the run is not a started one of protocol 2.';
