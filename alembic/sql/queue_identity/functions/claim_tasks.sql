-- What a worker calls with the messages it has read: the queue it reads, the flow it has handlers for, and itself.
create or replace function pgflow.claim_tasks(queue_name text, flow_slug text, msg_ids bigint[], worker_id uuid)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  claim record;
begin
  claim := pgflow._claim_messages(
    claim_tasks.queue_name, claim_tasks.flow_slug, claim_tasks.msg_ids, claim_tasks.worker_id
  );
  if claim.outcome ->> 'outcome' <> 'claimed' then
    return claim.outcome;
  end if;

  -- Message ids as text: a client's numbers may not hold a bigint.
  return claim.outcome || jsonb_build_object('tasks', coalesce(
    (
      select jsonb_agg(
        jsonb_build_object(
          'flow_slug', task.flow_slug,
          'run_id', task.run_id,
          'step_slug', task.step_slug,
          'task_index', task.task_index,
          'attempt', claimed.attempts_count,
          'queue_name', claim.outcome -> 'queue_name',
          'msg_id', task.msg_id::text,
          'input', task.input,
          'flow_input', task.flow_input
        )
        order by task.run_id, task.step_slug, task.task_index
      )
      from pgflow._task_records(claim.outcome ->> 'queue_name', claim.claimed) task
      join pgflow.step_tasks claimed using (run_id, step_slug, task_index)
    ), '[]'
  ));
end;
$$;

comment on function pgflow.claim_tasks(text, text, bigint[], uuid) is
  'Claim the tasks behind messages read from a queue (any spelling) for a flow''s handlers. The whole batch is '
  'judged first. Outcome "claimed": tasks (queued ones, now started: one attempt counted, invisible for the '
  'effective timeout + 2 s), and the ids deferred (started elsewhere: visible again when recovery is due), '
  'archived (over), busy (locked by another session: left as read), foreign (not pgflow''s: archived, with a '
  'warning). Outcome "fatal": a message of pgflow''s has no task or another route, or the subscription is wrong: '
  'nothing is claimed or archived, what nobody has locked is visible again, the worker''s function is paused '
  '(resume_worker_function). Message ids are decimal strings; no message bodies. 23503 for an unknown worker; '
  '22P02 when a queued task''s message is not in the queue.';
