-- What a start relies on is written to, without a change: a writer that came before is waited for, one that comes later
-- waits, and one that reads an older snapshot fails (40001) instead of changing what it cannot see is needed.
-- The caller has found the definition inside the envelope, so the rows are few.
create or replace function pgflow._v2_hold_definition(p_flow_slug text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  update pgflow.flows flow set created_at = flow.created_at where flow.flow_slug = p_flow_slug;
  update pgflow.steps step set created_at = step.created_at where step.flow_slug = p_flow_slug;
  update pgflow.deps dep set created_at = dep.created_at where dep.flow_slug = p_flow_slug;
end;
$$;

comment on function pgflow._v2_hold_definition(text) is
  'Internal, under the flow''s lock (_lock_flow). New versions of the rows of a flow, its steps and its edges, as they '
  'are.';
