-- One task, at most one message id. Locks: run, work, step state, task, message.
create or replace function pgflow.claim_task_v2(
  run_id uuid,
  step_slug text,
  task_index integer,
  queue_name text,
  msg_ids bigint[],
  worker_id uuid,
  claim_id uuid default null
)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  limits constant jsonb := pgflow._v2_limits();
  token constant uuid := coalesce(claim_task_v2.claim_id, gen_random_uuid());
  run pgflow.runs;
  work pgflow.run_work;
  state pgflow.step_states;
  task pgflow.step_tasks;
  known pgflow.task_claims;
  step pgflow.steps;
  shape record;
  policy_timeout integer;
  made integer;
  available boolean;
  claimed_at timestamptz;
begin
  -- Before anything is expanded, looked up or locked.
  if not pgflow._v2_is_singleton(claim_task_v2.msg_ids) then
    return jsonb_build_object('outcome', 'rejected', 'reason', 'message_ids');
  elsif claim_task_v2.run_id is null or claim_task_v2.step_slug is null or claim_task_v2.task_index is null
    or claim_task_v2.worker_id is null
  then
    return jsonb_build_object('outcome', 'rejected', 'reason', 'null_argument');
  end if;

  run := pgflow._v2_lock_run(claim_task_v2.run_id);
  if run.run_id is null then
    return jsonb_build_object('outcome', 'unknown', 'reason', 'run');
  elsif not exists (select from pgflow.run_work w where w.run_id = run.run_id) then
    return jsonb_build_object('outcome', 'wrong_protocol', 'protocol_version', 1);
  end if;

  select claim.* into known from pgflow.task_claims claim where claim.claim_id = token;
  if found then
    if (known.run_id, known.step_slug, known.task_index, known.worker_id) <>
      (run.run_id, claim_task_v2.step_slug, claim_task_v2.task_index, claim_task_v2.worker_id)
    then
      return jsonb_build_object('outcome', 'conflict', 'reason', 'claim_id');
    elsif known.state <> 'active' then
      return jsonb_build_object('outcome', 'stale', 'reason', known.state);
    end if;
    return pgflow._v2_claim_record(token, true);
  end if;

  if run.status <> 'started' then
    return jsonb_build_object('outcome', 'terminal', 'reason', 'run', 'status', run.status);
  end if;
  select w.* into strict work from pgflow.run_work w where w.run_id = run.run_id for update;

  select s.* into state
  from pgflow.step_states s
  where s.run_id = run.run_id and s.step_slug = claim_task_v2.step_slug
  for update;
  if not found then
    return jsonb_build_object('outcome', 'unknown', 'reason', 'step');
  elsif state.status in ('completed', 'failed', 'skipped') then
    return jsonb_build_object('outcome', 'terminal', 'reason', 'step', 'status', state.status);
  end if;
  select t.* into task
  from pgflow.step_tasks t
  where t.run_id = run.run_id and t.step_slug = state.step_slug and t.task_index = claim_task_v2.task_index
  for update;
  if not found then
    return case
      when claim_task_v2.task_index = 0 then jsonb_build_object('outcome', 'blocked', 'reason', 'not_dispatched')
      else jsonb_build_object('outcome', 'unknown', 'reason', 'task')
    end;
  elsif task.status not in ('queued', 'started') then
    return jsonb_build_object('outcome', 'terminal', 'reason', 'task', 'status', task.status);
  elsif lower(claim_task_v2.queue_name) <> task.queue_name
    or claim_task_v2.msg_ids[array_lower(claim_task_v2.msg_ids, 1)] <> task.message_id
  then
    return jsonb_build_object('outcome', 'stale', 'reason', 'message');
  end if;

  -- Engine health comes before ownership: what holds a run up is to be seen.
  if work.state <> 'clean' then
    return jsonb_build_object(
      'outcome', 'blocked', 'reason', work.state, 'attention_reason', work.attention_reason
    );
  end if;
  if task.status = 'started' then
    return (
      select jsonb_build_object('outcome', 'held', 'lease_expires_at', claim.lease_expires_at)
      from pgflow.task_claims claim
      where claim.claim_id = task.current_claim_id
    );
  end if;

  shape := pgflow._v2_definition(run.flow_slug);
  if pgflow._v2_sha256(pgflow._canonical_json(shape.definition)) is distinct from work.definition_sha256 then
    return jsonb_build_object('outcome', 'blocked', 'reason', 'definition_changed');
  end if;

  select s.* into strict step
  from pgflow.steps s
  where s.flow_slug = run.flow_slug and s.step_slug = state.step_slug;
  if task.queued_at + make_interval(secs => coalesce(step.opt_start_delay, 0)) > clock_timestamp() then
    return jsonb_build_object('outcome', 'blocked', 'reason', 'start_delay');
  end if;

  select count(*) into made
  from pgflow.task_claims claim
  where (claim.run_id, claim.step_slug, claim.task_index) = (task.run_id, task.step_slug, task.task_index);
  if made >= (limits ->> 'claims_per_task')::integer then
    return jsonb_build_object('outcome', 'blocked', 'reason', 'claims_exhausted');
  end if;

  execute format('select true from pgmq.%I message where message.msg_id = $1 for update', 'q_' || task.queue_name)
  into available using task.message_id;
  if available is not true then
    return jsonb_build_object('outcome', 'blocked', 'reason', 'message_missing');
  end if;

  select coalesce(step.opt_timeout, flow.opt_timeout) into strict policy_timeout
  from pgflow.flows flow
  where flow.flow_slug = run.flow_slug;
  claimed_at := clock_timestamp();
  insert into pgflow.task_claims (
    claim_id, run_id, step_slug, task_index, claim_number, queue_name, message_id, worker_id,
    max_attempts, when_exhausted, timeout_seconds, claimed_at, lease_expires_at
  )
  values (
    token, task.run_id, task.step_slug, task.task_index, made + 1, task.queue_name, task.message_id,
    claim_task_v2.worker_id, (limits ->> 'max_attempts')::integer, step.when_exhausted, policy_timeout, claimed_at,
    claimed_at + make_interval(secs => policy_timeout + (limits ->> 'lease_grace_seconds')::integer)
  )
  on conflict on constraint task_claims_pkey do nothing;
  if not found then
    -- The token has been used on another run meanwhile.
    return jsonb_build_object('outcome', 'conflict', 'reason', 'claim_id');
  end if;

  -- attempts_count belongs to protocol 1 and stays 0: claims are counted as rows.
  update pgflow.step_tasks t
  set status = 'started', started_at = greatest(claimed_at, t.queued_at), current_claim_id = token
  where (t.run_id, t.step_slug, t.task_index) = (task.run_id, task.step_slug, task.task_index);
  perform pgmq.set_vt(
    task.queue_name, task.message_id, policy_timeout + (limits ->> 'lease_grace_seconds')::integer
  );

  return pgflow._v2_claim_record(token, false);
end;
$$;

comment on function pgflow.claim_task_v2(uuid, text, integer, text, bigint[], uuid, uuid) is
  'Internal protocol. Claim one task of protocol 2. msg_ids has at most one id, which with queue_name must be the '
  'task''s; both may be left out (NULL). claim_id is the caller''s token: repeated, it returns the same claim. '
  'Outcomes: claimed, held, blocked (reason: pending, retry_wait, attention, not_dispatched, start_delay, '
  'claims_exhausted, definition_changed, message_missing), stale, terminal, conflict, unknown, wrong_protocol, '
  'rejected. Only "claimed" changes anything.';
