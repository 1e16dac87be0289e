-- Controlled recovery: one claim whose lease is over is revoked, and its task waits for the next one. The claim is
-- named, so a repeated call does not revoke a later one. Locks: run, work, step state, task, claim, message.
create or replace function pgflow.recover_task_v2(
  run_id uuid, step_slug text, task_index integer, claim_id uuid, msg_ids bigint[] default '{}'
)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  limits constant jsonb := pgflow._v2_limits();
  run pgflow.runs;
  work pgflow.run_work;
  task pgflow.step_tasks;
  claim pgflow.task_claims;
  available boolean;
  attention text;
begin
  if not pgflow._v2_is_singleton(recover_task_v2.msg_ids) then
    return jsonb_build_object('outcome', 'rejected', 'reason', 'message_ids');
  elsif recover_task_v2.run_id is null or recover_task_v2.step_slug is null or recover_task_v2.task_index is null
    or recover_task_v2.claim_id is null
  then
    return jsonb_build_object('outcome', 'rejected', 'reason', 'null_argument');
  end if;

  run := pgflow._v2_lock_run(recover_task_v2.run_id);
  if run.run_id is null then
    return jsonb_build_object('outcome', 'unknown', 'reason', 'run');
  elsif not exists (select from pgflow.run_work w where w.run_id = run.run_id) then
    return jsonb_build_object('outcome', 'wrong_protocol', 'protocol_version', 1);
  end if;

  select c.* into claim from pgflow.task_claims c where c.claim_id = recover_task_v2.claim_id;
  if not found
    or (claim.run_id, claim.step_slug, claim.task_index)
      <> (run.run_id, recover_task_v2.step_slug, recover_task_v2.task_index)
  then
    return jsonb_build_object('outcome', 'unknown', 'reason', 'claim');
  elsif claim.message_id <> recover_task_v2.msg_ids[array_lower(recover_task_v2.msg_ids, 1)] then
    return jsonb_build_object('outcome', 'stale', 'reason', 'message');
  elsif claim.state = 'settled' then
    return jsonb_build_object('outcome', 'settled', 'disposition', claim.disposition);
  elsif claim.revoked_reason = 'lease_lost' then
    return jsonb_build_object('outcome', 'recovered', 'claim_id', claim.claim_id, 'replayed', true);
  elsif claim.state = 'revoked' then
    return jsonb_build_object('outcome', 'terminal', 'reason', 'run', 'status', run.status);
  elsif claim.lease_expires_at > clock_timestamp() then
    return jsonb_build_object('outcome', 'not_expired', 'lease_expires_at', claim.lease_expires_at);
  end if;

  select w.* into strict work from pgflow.run_work w where w.run_id = run.run_id for update;
  if work.state = 'attention' then
    return jsonb_build_object('outcome', 'attention', 'reason', work.attention_reason);
  end if;
  perform from pgflow.step_states s where s.run_id = run.run_id and s.step_slug = claim.step_slug for update;
  select t.* into strict task
  from pgflow.step_tasks t
  where (t.run_id, t.step_slug, t.task_index) = (claim.run_id, claim.step_slug, claim.task_index)
  for update;
  execute format('select true from pgmq.%I message where message.msg_id = $1 for update', 'q_' || task.queue_name)
  into available using task.message_id;

  -- Without a claim or a message to come the task would be lost in silence. The claim stays: its result still counts.
  attention := case
    when claim.claim_number >= (limits ->> 'claims_per_task')::integer then 'claims_exhausted'
    when available is not true then 'message_missing'
  end;
  if attention is not null then
    update pgflow.run_work w
    set state = 'attention', attention_at = clock_timestamp(), attention_reason = attention, next_attempt_at = null
    where w.run_id = run.run_id;
    return jsonb_build_object('outcome', 'attention', 'reason', attention);
  end if;

  update pgflow.task_claims c
  set state = 'revoked', revoked_at = clock_timestamp(), revoked_reason = 'lease_lost'
  where c.claim_id = claim.claim_id;
  update pgflow.step_tasks t
  set status = 'queued', started_at = null, current_claim_id = null
  where (t.run_id, t.step_slug, t.task_index) = (claim.run_id, claim.step_slug, claim.task_index);
  perform pgmq.set_vt(task.queue_name, task.message_id, 0);

  return jsonb_build_object('outcome', 'recovered', 'claim_id', claim.claim_id, 'replayed', false);
end;
$$;

comment on function pgflow.recover_task_v2(uuid, text, integer, uuid, bigint[]) is
  'Internal protocol. Revoke one claim whose lease is over: its task is queued again and its message visible. '
  'Outcomes: recovered (replayed when it was before), not_expired, settled, attention (no further claim is allowed, or '
  'the message is missing: the claim stays, the run''s work is stopped for a person), terminal, stale, unknown, '
  'wrong_protocol, rejected.';
