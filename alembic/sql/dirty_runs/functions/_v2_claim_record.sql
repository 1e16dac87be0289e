-- What an executor needs of its claim. Message ids as text: a client's numbers may not hold a bigint.
create or replace function pgflow._v2_claim_record(p_claim_id uuid, p_replayed boolean)
returns jsonb
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  select jsonb_build_object(
    'outcome', 'claimed',
    'replayed', p_replayed,
    'claim_id', claim.claim_id,
    'claim_number', claim.claim_number,
    'flow_slug', record.flow_slug,
    'run_id', claim.run_id,
    'step_slug', claim.step_slug,
    'task_index', claim.task_index,
    'queue_name', claim.queue_name,
    'msg_id', claim.message_id::text,
    'input', record.input,
    'flow_input', record.flow_input,
    'lease_expires_at', claim.lease_expires_at,
    'policy', jsonb_build_object(
      'maxAttempts', claim.max_attempts, 'whenExhausted', claim.when_exhausted, 'timeout', claim.timeout_seconds
    )
  )
  from pgflow.task_claims claim
  cross join lateral pgflow._task_records(claim.queue_name, array[claim.message_id]) record
  where claim.claim_id = p_claim_id;
$$;

comment on function pgflow._v2_claim_record(uuid, boolean) is
  'Internal. The outcome "claimed" of a claim: address, token, lease, policy and the task''s input.';
