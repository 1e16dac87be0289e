-- requeue_stalled_tasks(): queue again what has been started for longer than its timeout plus
-- 30 seconds; give up the fourth time.
-- 0.15.1: the timeout is the step's own, or else the flow's; run and step must be started.
-- Core behaviour: requeue_stalled_tasks.

create or replace function pgflow.requeue_stalled_tasks()
returns integer
language plpgsql
security definer
set search_path = ''
as $function$
declare
  v_queue record;
  v_requeued integer := 0;
begin
  for v_queue in
    with stalled as (
      select task.run_id, task.step_slug, task.task_index, task.requeued_count < 3 as again
      from pgflow.step_tasks as task
      join pgflow.runs as run
        on run.run_id = task.run_id
        and run.status = 'started'
      join pgflow.step_states as state
        on state.run_id = task.run_id
        and state.step_slug = task.step_slug
        and state.status = 'started'
      join pgflow.flows as flow on flow.flow_slug = task.flow_slug
      join pgflow.steps as step
        on step.flow_slug = task.flow_slug
        and step.step_slug = task.step_slug
      where task.status = 'started'
        and task.permanently_stalled_at is null
        and task.started_at < now() - make_interval(secs => coalesce(step.opt_timeout, flow.opt_timeout) + 30)
      for update of task skip locked
    ),
    changed as (
      update pgflow.step_tasks as task
      set status = case when stalled.again then 'queued' else task.status end,
          requeued_count = task.requeued_count + case when stalled.again then 1 else 0 end,
          started_at = case when stalled.again then null else task.started_at end,
          last_worker_id = case when stalled.again then null else task.last_worker_id end,
          last_requeued_at = case when stalled.again then now() else task.last_requeued_at end,
          permanently_stalled_at = case when stalled.again then null else now() end
      from stalled
      where task.run_id = stalled.run_id
        and task.step_slug = stalled.step_slug
        and task.task_index = stalled.task_index
      returning task.flow_slug, task.status, task.message_id, task.message_id is not null as has_message
    )
    select
      changed.flow_slug,
      count(*) filter (where changed.status = 'queued') as requeued,
      sum(count(*) filter (where changed.status = 'queued')) over () as requeued_by_call,
      array_agg(changed.message_id) filter (where changed.status = 'queued' and changed.has_message)
        as requeued_ids,
      array_agg(changed.message_id) filter (where changed.status = 'started' and changed.has_message)
        as stalled_ids
    from changed
    group by changed.flow_slug
    order by changed.flow_slug
  loop
    v_requeued := v_requeued + v_queue.requeued;

    if v_queue.requeued_ids is not null then
      perform pgflow.set_vt_batch(
        v_queue.flow_slug,
        v_queue.requeued_ids,
        array_fill(0, array[cardinality(v_queue.requeued_ids)])
      );
    end if;

    -- A defect of the release, kept: a call that requeues nothing does not archive what it gives up either.
    if v_queue.stalled_ids is not null and v_queue.requeued_by_call > 0 then
      perform pgmq.archive(v_queue.flow_slug, v_queue.stalled_ids);
    end if;
  end loop;

  return v_requeued;
end
$function$;

comment on function pgflow.requeue_stalled_tasks() is
  'Makes stalled tasks queued and visible again, three times each, then marks them; returns how many.';
