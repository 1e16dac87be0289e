-- The handler has failed. The one policy of the envelope: its first failure is its last, and the run's.
create or replace function pgflow.fail_claim_v2(claim_id uuid, error_message text)
returns jsonb
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  select pgflow._v2_settle(claim_id, 'failed', to_jsonb(error_message));
$$;

comment on function pgflow.fail_claim_v2(uuid, text) is
  'Internal protocol. Report a claim''s failure: the run fails at once, its tasks, claims and messages are ended. '
  'Outcomes as complete_claim_v2, disposition failed. Of a text of more than 4096 bytes the first 1023 characters are '
  'kept; a replay is told by all of it.';
