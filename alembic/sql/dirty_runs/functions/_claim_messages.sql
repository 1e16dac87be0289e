-- The claim boundary. A claim waits for nobody's task: what another session holds is left as it was read, for a later
-- read. So it stands in no circle of sessions that wait for each other, and one slow transaction holds up its own tasks
-- only. Locks: tasks, in key order; then queue rows. Whether a run is over is judged after its tasks are locked; a run
-- that ends later finds the claimed task started, and ends it.
create or replace function pgflow._claim_messages(
  p_queue_name text, p_flow_slug text, p_msg_ids bigint[], p_worker_id uuid,
  out outcome jsonb, out claimed bigint[]
)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  queue constant text := lower(p_queue_name);
  batch constant bigint[] := array(
    select distinct wanted.id from unnest(p_msg_ids) as wanted (id) where wanted.id is not null order by wanted.id
  );
  held bigint[];
  subscribed boolean;
  visible_in integer[];
  deferred bigint[];
  deferred_in integer[];
  archived bigint[];
  busy bigint[];
  strays bigint[];
  others bigint[];
  ended record;
  doubtful jsonb;
  doubtful_count integer;
  moved integer;
begin
  claimed := '{}';

  held := array(
    select task.message_id
    from pgflow.step_tasks task
    where task.queue_name = queue and task.message_id = any (batch) and task.status in ('queued', 'started')
    order by task.run_id, task.step_slug, task.task_index
    for update skip locked
  );

  -- The subscription comes before the messages.
  select queue = lower(flow.flow_slug) or exists (
    select from pgflow.steps step where step.flow_slug = flow.flow_slug and step.queue_name = queue
  )
  into subscribed
  from pgflow.flows flow
  where flow.flow_slug = p_flow_slug;
  if not found then
    outcome := pgflow._refuse_batch(
      queue, batch, p_worker_id, format('flow "%s" does not exist', p_flow_slug), '[]', 0
    );
    return;
  end if;
  if subscribed is not true then
    outcome := pgflow._refuse_batch(
      queue, batch, p_worker_id, format('queue "%s" is not a queue of flow "%s"', queue, p_flow_slug), '[]', 0
    );
    return;
  end if;

  select
    coalesce(array_agg(judged.msg_id order by judged.msg_id) filter (where judged.verdict = 'claim'), '{}'),
    array_agg(judged.visible_in order by judged.msg_id) filter (where judged.verdict = 'claim'),
    array_agg(judged.msg_id order by judged.msg_id) filter (where judged.verdict = 'defer'),
    array_agg(judged.visible_in order by judged.msg_id) filter (where judged.verdict = 'defer'),
    array_agg(judged.msg_id order by judged.msg_id) filter (where judged.verdict = 'archive'),
    array_agg(judged.msg_id order by judged.msg_id) filter (where judged.verdict = 'busy'),
    array_agg(judged.msg_id order by judged.msg_id) filter (where judged.verdict = 'foreign'),
    array_agg(judged.msg_id order by judged.msg_id) filter (where judged.verdict = 'other_protocol'),
    jsonb_agg(
      jsonb_build_object('msg_id', judged.msg_id::text, 'reason', judged.reason) order by judged.msg_id
    ) filter (where judged.verdict = 'fatal'),
    count(*) filter (where judged.verdict = 'fatal')
  into claimed, visible_in, deferred, deferred_in, archived, busy, strays, others, doubtful, doubtful_count
  from pgflow._judge_messages(queue, p_flow_slug, batch, held) judged;

  if doubtful_count > 0 then
    claimed := '{}';
    outcome := pgflow._refuse_batch(
      queue, batch, p_worker_id,
      format('queue "%s" has work that flow "%s" cannot account for', queue, p_flow_slug), doubtful, doubtful_count
    );
    return;
  end if;

  if cardinality(claimed) > 0 then
    update pgflow.step_tasks task
    set status = 'started',
        attempts_count = task.attempts_count + 1,
        -- Not before it was queued: that may have been after this transaction began.
        started_at = greatest(now(), task.queued_at),
        last_worker_id = p_worker_id,
        -- Given up once, and brought back since: a new attempt has not stalled.
        permanently_stalled_at = null
    where task.queue_name = queue and task.message_id = any (claimed);
  end if;

  if cardinality(claimed || deferred) > 0 then
    select count(*) filter (where message.msg_id = any (claimed)) into moved
    from pgflow.set_vt_batch(queue, claimed || deferred, visible_in || deferred_in) message;
    -- A task that is claimed must come back if its worker dies. Of a deferred one another worker may have archived
    -- the message meanwhile.
    if moved <> cardinality(claimed) then
      raise exception 'visibility updated for % of % claimed messages of queue "%"', moved, cardinality(claimed), queue
        using errcode = 'invalid_text_representation',
              hint = 'Nothing was claimed. Messages of live tasks are missing from the queue.';
    end if;
  end if;

  if archived is not null or strays is not null then
    ended := pgflow._free_messages(queue, archived || strays);
    archived := array(select unnest(archived) intersect select unnest(ended.free) order by 1);
    strays := array(select unnest(strays) intersect select unnest(ended.free) order by 1);
    busy := busy || ended.busy;
    perform pgmq.archive(queue, ended.free);
  end if;
  if cardinality(strays) > 0 then
    raise warning 'queue "%": archived messages that are not pgflow''s: %', queue,
      array_to_string(strays[1:20], ', ') || case when cardinality(strays) > 20 then ', ...' else '' end
      using hint = 'Applications must not send to a queue that pgflow owns.';
  end if;

  outcome := jsonb_build_object(
    'outcome', 'claimed',
    'queue_name', queue,
    'deferred', to_jsonb(coalesce(deferred, '{}')::text[]),
    'archived', to_jsonb(coalesce(archived, '{}')::text[]),
    'busy', to_jsonb(coalesce(busy, '{}')::text[]),
    'foreign', to_jsonb(coalesce(strays, '{}')::text[])
  );
  -- Left as read; only where there are any, so that the outcome is else as it always was.
  if others is not null then
    outcome := outcome || jsonb_build_object('other_protocol', to_jsonb(others::text[]));
  end if;
end;
$$;

comment on function pgflow._claim_messages(text, text, bigint[], uuid) is
  'Internal. Judges a whole batch before it changes anything: queued tasks are started and their ids '
  'returned in claimed, started ones put off to their recovery, messages of tasks that are over and foreign '
  'ones archived, those of protocol 2 left as read. One message that cannot be accounted for refuses all '
  '(_refuse_batch). See claim_tasks.';
