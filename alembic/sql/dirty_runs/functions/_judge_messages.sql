-- The complete classification of a batch, before anything is changed. The caller holds the locks on p_held; what others
-- hold is judged by its route, which never changes, and else left alone.
-- A message that a task owns is judged by the task alone, whatever its body looks like. Bodies are read only of
-- messages without a task, and nothing of them is returned.
create or replace function pgflow._judge_messages(
  p_queue_name text, p_flow_slug text, p_msg_ids bigint[], p_held bigint[]
)
returns table (msg_id bigint, verdict text, reason text, visible_in integer)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  -- Asked once for the batch. What comes to be later is held by nobody here, and so busy.
  of_protocol_2 constant bigint[] := pgflow._v2_owned_messages(p_queue_name, p_msg_ids);
  judged_count integer;
  without_task bigint[];
begin
  return query
    select
      task.message_id,
      judged.verdict,
      case
        when judged.verdict <> 'fatal' then null
        when task.flow_slug <> p_flow_slug then 'wrong_route'
        else 'inconsistent_task'
      end,
      case judged.verdict
        when 'claim' then least(pace.timeout, 2147483645) + 2
        -- The recovery's own deadline; once it is past, the recovery's interval.
        when 'defer' then
          case when pace.recovery_at > clock_timestamp()
            then least(ceil(extract(epoch from pace.recovery_at - clock_timestamp())), 2147483647)::integer
            else 15
          end
      end
    from pgflow.step_tasks task
    join pgflow.runs run on run.run_id = task.run_id
    join pgflow.step_states state on state.run_id = task.run_id and state.step_slug = task.step_slug
    join pgflow.steps step on step.flow_slug = task.flow_slug and step.step_slug = task.step_slug
    join pgflow.flows flow on flow.flow_slug = task.flow_slug
    cross join lateral (
      select coalesce(step.opt_timeout, flow.opt_timeout) as timeout
    ) as effective
    cross join lateral (
      select effective.timeout, task.started_at + make_interval(secs => effective.timeout + 30.0) as recovery_at
    ) as pace
    cross join lateral (
      select
        case
          when task.message_id = any (of_protocol_2) then 'other_protocol'
          when task.flow_slug <> p_flow_slug then 'fatal'
          when task.status in ('queued', 'started') and task.message_id <> all (p_held) then 'busy'
          when task.status not in ('queued', 'started')
            or run.status <> 'started'
            or state.status in ('completed', 'failed', 'skipped')
            or (task.status = 'started' and task.permanently_stalled_at is not null) then 'archive'
          when state.status <> 'started' then 'fatal'
          when task.status = 'queued' then 'claim'
          else 'defer'
        end as verdict
    ) as judged
    where task.queue_name = p_queue_name and task.message_id = any (p_msg_ids);

  -- A task has one message, so as many tasks as messages leave none over.
  get diagnostics judged_count = row_count;
  if judged_count < cardinality(p_msg_ids) then
    select array_agg(wanted.id) into without_task
    from unnest(p_msg_ids) as wanted (id)
    where not exists (
      select from pgflow.step_tasks task where task.queue_name = p_queue_name and task.message_id = wanted.id
    );

    -- A message that is in the queue no more is nobody's business: another worker has finished it.
    return query execute format(
      $sql$
        select
          message.msg_id, case when doubt.fault is null then 'foreign' else 'fatal' end, doubt.fault, null::integer
        from pgmq.%I message
        cross join lateral pgflow._message_fault(message.message) as doubt (fault)
        where message.msg_id = any ($1)
          -- Of the same snapshot as the message: since the look above its task may have come.
          and not exists (
            select from pgflow.step_tasks task where task.queue_name = $2 and task.message_id = message.msg_id
          )
      $sql$,
      'q_' || p_queue_name
    ) using without_task, p_queue_name;
  end if;
end;
$$;

comment on function pgflow._judge_messages(text, text, bigint[], bigint[]) is
  'Internal, called by claims under their locks. The verdict on each message of a batch (queue in canonical '
  'spelling, distinct ids): claim (visible_in: effective timeout + 2 s), defer (visible_in: seconds to the '
  'recovery''s deadline, 15 once that is past), archive, busy, foreign, other_protocol, or fatal with a reason. No '
  'row for a message that is not in the queue. 42P01 when there is no such queue.';
