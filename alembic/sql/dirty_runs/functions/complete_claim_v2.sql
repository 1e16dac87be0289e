-- The handler has returned.
create or replace function pgflow.complete_claim_v2(claim_id uuid, output jsonb)
returns jsonb
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  select pgflow._v2_settle(claim_id, 'succeeded', output);
$$;

comment on function pgflow.complete_claim_v2(uuid, jsonb) is
  'Internal protocol. Report a claim''s result (any JSON value, also null; not SQL NULL). Outcomes: accepted '
  '(disposition completed, or oversized: the run failed; replayed when the same was reported before, whatever has '
  'happened since), conflict (something else was reported), stale (revoked, unknown or not current), terminal, '
  'rejected. A success ends task and step and requests orchestration; it starts nothing.';
