-- Settlement begins with the claim: it alone says which run, task and message are meant, and what was settled before.
-- Locks: run, work, step state, task, message.
create or replace function pgflow._v2_settle(p_claim_id uuid, p_kind text, p_payload jsonb)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  limits constant jsonb := pgflow._v2_limits();
  run pgflow.runs;
  state pgflow.step_states;
  task pgflow.step_tasks;
  claim pgflow.task_claims;
  canonical text;
  size bigint;
  identity bytea;
  ended_as text;
  error text;
begin
  if p_claim_id is null or p_payload is null then
    return jsonb_build_object('outcome', 'rejected', 'reason', 'null_argument');
  end if;

  -- The address of a claim never changes, so it may be read before the lock that it names.
  select c.* into claim from pgflow.task_claims c where c.claim_id = p_claim_id;
  if not found then
    return jsonb_build_object('outcome', 'stale', 'reason', 'unknown');
  end if;
  run := pgflow._v2_lock_run(claim.run_id);
  select c.* into claim from pgflow.task_claims c where c.claim_id = p_claim_id;
  if not found then
    return jsonb_build_object('outcome', 'stale', 'reason', 'unknown');
  end if;

  if claim.state = 'revoked' then
    return case claim.revoked_reason
      when 'run_failed' then jsonb_build_object('outcome', 'terminal', 'reason', 'run', 'status', run.status)
      else jsonb_build_object('outcome', 'stale', 'reason', 'revoked')
    end;
  end if;
  if claim.state = 'active' then
    if run.status <> 'started' then
      return jsonb_build_object('outcome', 'terminal', 'reason', 'run', 'status', run.status);
    end if;
    perform from pgflow.run_work work where work.run_id = run.run_id for update;
    select s.* into strict state
    from pgflow.step_states s
    where s.run_id = claim.run_id and s.step_slug = claim.step_slug
    for update;
    if state.status <> 'started' then
      return jsonb_build_object('outcome', 'terminal', 'reason', 'step', 'status', state.status);
    end if;
    select t.* into strict task
    from pgflow.step_tasks t
    where (t.run_id, t.step_slug, t.task_index) = (claim.run_id, claim.step_slug, claim.task_index)
    for update;
    if task.status <> 'started' or task.current_claim_id is distinct from claim.claim_id then
      return jsonb_build_object('outcome', 'stale', 'reason', 'not_current');
    end if;
  end if;

  -- Only now the payload.
  canonical := pgflow._canonical_json(p_payload);
  size := pgflow._v2_bytes(canonical);
  identity := pgflow._v2_sha256(canonical);
  if claim.state = 'settled' then
    if (claim.settlement_kind, claim.settlement_bytes, claim.settlement_sha256) = (p_kind, size, identity) then
      return jsonb_build_object('outcome', 'accepted', 'disposition', claim.disposition, 'replayed', true);
    end if;
    return jsonb_build_object(
      'outcome', 'conflict', 'settled_kind', claim.settlement_kind, 'disposition', claim.disposition
    );
  end if;

  if p_kind = 'failed' then
    ended_as := 'failed';
    error := pgflow._v2_bounded_error(p_payload #>> '{}');
  elsif size > (limits ->> 'result_bytes')::integer then
    ended_as := 'oversized';
    error := format('[RESULT_TOO_LARGE] %s bytes, at most %s are kept', size, limits ->> 'result_bytes');
  else
    ended_as := 'completed';
  end if;

  update pgflow.task_claims c
  set state = 'settled', settled_at = clock_timestamp(), settlement_kind = p_kind, disposition = ended_as,
      settlement_sha256 = identity, settlement_bytes = size, settlement_error = error
  where c.claim_id = claim.claim_id;

  if ended_as = 'completed' then
    update pgflow.step_tasks t
    set status = 'completed', completed_at = greatest(clock_timestamp(), t.started_at), output = canonical::jsonb
    where (t.run_id, t.step_slug, t.task_index) = (task.run_id, task.step_slug, task.task_index);
    update pgflow.step_states s
    set status = 'completed', completed_at = greatest(clock_timestamp(), s.started_at), remaining_tasks = 0,
        output = canonical::jsonb
    where s.run_id = state.run_id and s.step_slug = state.step_slug;
    perform pgflow._v2_request(run.run_id);
    perform pgmq.archive(task.queue_name, task.message_id);
    perform pgflow._v2_send_hint(run.run_id, 'step:completed', jsonb_build_object(
      'step_slug', state.step_slug, 'status', 'completed', 'output', canonical::jsonb,
      'completed_at', clock_timestamp()
    ));
  else
    update pgflow.step_tasks t
    set status = 'failed', failed_at = greatest(clock_timestamp(), t.started_at), error_message = error
    where (t.run_id, t.step_slug, t.task_index) = (task.run_id, task.step_slug, task.task_index);
    perform pgflow._v2_fail_run(run.run_id, state.step_slug, error);
  end if;

  return jsonb_build_object('outcome', 'accepted', 'disposition', ended_as, 'replayed', false);
end;
$$;

comment on function pgflow._v2_settle(uuid, text, jsonb) is
  'Internal. complete_claim_v2 (kind succeeded) and fail_claim_v2 (kind failed, payload the error text as a JSON '
  'string).';
