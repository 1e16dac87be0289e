-- A task has failed. Locks: run, step state, task, dependents' states, queue.
create or replace function pgflow.fail_task(run_id uuid, step_slug text, task_index integer, error_message text)
returns setof pgflow.step_tasks
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  run pgflow.runs;
  seen_at timestamptz;
  state pgflow.step_states;
  task pgflow.step_tasks;
  max_attempts integer;
  base_delay integer;
  when_exhausted text;
  retry boolean;
begin
  <<callback>>
  begin
    -- Cheap way out before any lock; looked at again below, under the locks.
    select r.* into run from pgflow.runs r where r.run_id = fail_task.run_id;
    seen_at := run.started_at;
    if pgflow._speaks_protocol_2(fail_task.run_id) then
      perform pgflow._require_protocol_1(fail_task.run_id);
    end if;
    if run.status = 'failed' then
      perform pgflow._archive_task_message(fail_task.run_id, fail_task.step_slug, fail_task.task_index);
      exit callback;
    end if;

    select r.* into run from pgflow.runs r where r.run_id = fail_task.run_id for update;
    select s.* into state
    from pgflow.step_states s
    where s.run_id = fail_task.run_id and s.step_slug = fail_task.step_slug
    for update;
    exit callback when state.run_id is null;
    -- A run that has begun since the first look, under a new id or one that is used again, may be of either protocol.
    if run.started_at is distinct from seen_at then
      perform pgflow._require_protocol_1(fail_task.run_id);
    end if;

    -- A late callback: the run failed while we waited, or the step is no longer running.
    if run.status = 'failed' or state.status <> 'started' then
      perform pgflow._archive_task_message(fail_task.run_id, fail_task.step_slug, fail_task.task_index);
      exit callback;
    end if;

    select
      coalesce(step.opt_max_attempts, flow.opt_max_attempts),
      coalesce(step.opt_base_delay, flow.opt_base_delay),
      step.when_exhausted
    into max_attempts, base_delay, when_exhausted
    from pgflow.steps step
    join pgflow.flows flow on flow.flow_slug = step.flow_slug
    where step.flow_slug = state.flow_slug and step.step_slug = state.step_slug;

    select t.* into task
    from pgflow.step_tasks t
    where t.run_id = fail_task.run_id
      and t.step_slug = fail_task.step_slug
      and t.task_index = fail_task.task_index
      and t.status = 'started'
    for update;

    if found then
      -- A task that recovery has given up has no message to come back by: its late failure is its last.
      retry := task.attempts_count < max_attempts and task.permanently_stalled_at is null;
      update pgflow.step_tasks t
      set status = case when retry then 'queued' else 'failed' end,
          started_at = case when retry then null else t.started_at end,
          -- Not before the start: while this call waited, the task may have been requeued and claimed anew.
          failed_at = case when retry then null else greatest(now(), t.started_at) end,
          error_message = fail_task.error_message
      where t.run_id = task.run_id and t.step_slug = task.step_slug and t.task_index = task.task_index
      returning t.* into task;
    else
      -- Not started: nothing is counted, but a queued task's message keeps its distance.
      select t.* into task
      from pgflow.step_tasks t
      where t.run_id = fail_task.run_id
        and t.step_slug = fail_task.step_slug
        and t.task_index = fail_task.task_index
        and t.status = 'queued';
    end if;

    if task.status = 'queued' then
      update pgflow.step_states s
      set error_message = null
      where s.run_id = fail_task.run_id and s.step_slug = fail_task.step_slug and s.error_message is not null;
      perform pgmq.set_vt(
        task.queue_name, task.message_id, pgflow.calculate_retry_delay(base_delay, task.attempts_count)
      )
      where task.message_id is not null;
    elsif task.status = 'failed' then
      if when_exhausted = 'fail' then
        perform pgflow._fail_run_for_exhausted_task(fail_task.run_id, fail_task.step_slug, fail_task.error_message);
      else
        perform pgflow._skip_step_for_exhausted_task(
          fail_task.run_id, fail_task.step_slug, fail_task.error_message, when_exhausted = 'skip-cascade'
        );
      end if;
      perform pgflow._archive_task_message(fail_task.run_id, fail_task.step_slug, fail_task.task_index);
    end if;
  end callback;

  return query
    select t.*
    from pgflow.step_tasks t
    where t.run_id = fail_task.run_id
      and t.step_slug = fail_task.step_slug
      and t.task_index = fail_task.task_index;
end;
$$;

comment on function pgflow.fail_task(uuid, text, integer, text) is
  'Record a started task''s failure. With attempts left the task is queued again, its message visible after '
  'base delay x 2^attempts seconds; without, the step''s when_exhausted decides: "fail" the run, "skip" the '
  'step, or "skip-cascade". Late, repeated and unknown calls change nothing but archive the message of a '
  'task that is over. Returns the task as it is at the end, or no row. PF005 for a run of another protocol.';
