-- Tasks first, then their messages: the one order in which every path touches the two.
create or replace function pgflow._end_unfinished_tasks(p_run_id uuid, p_step_slugs text[], p_status text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  queue_names text[];
  msg_ids bigint[];
begin
  perform pgflow._require_protocol_1(p_run_id);
  -- Locked in key order, as claims lock them, and then updated by the same condition: joining the update to the
  -- locked rows would be quadratic on tables without statistics.
  perform
  from pgflow.step_tasks task
  where task.run_id = p_run_id
    and task.status in ('queued', 'started')
    and (p_step_slugs is null or task.step_slug = any (p_step_slugs))
  order by task.run_id, task.step_slug, task.task_index
  for update;

  with ended as (
    update pgflow.step_tasks task
    set status = p_status
    where task.run_id = p_run_id
      and task.status in ('queued', 'started')
      and (p_step_slugs is null or task.step_slug = any (p_step_slugs))
    returning task.queue_name, task.message_id
  )
  select array_agg(ended.queue_name), array_agg(ended.message_id)
  into queue_names, msg_ids
  from ended;

  perform pgflow._archive_messages(queue_names, msg_ids);
end;
$$;

comment on function pgflow._end_unfinished_tasks(uuid, text[], text) is
  'Internal. Queued and started tasks of a run (of the given steps, or of all when NULL) get the status '
  '"skipped" or "cancelled"; then their messages are archived, queue by queue. The caller holds the run''s '
  'row lock.';
