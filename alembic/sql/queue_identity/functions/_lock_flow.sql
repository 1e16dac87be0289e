-- One definition call on a flow at a time, whatever the case of its slug and whether or not it exists yet.
create or replace function pgflow._lock_flow(p_flow_slug text)
returns void
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  select pg_catalog.pg_advisory_xact_lock(1, pg_catalog.hashtext(lower(p_flow_slug)));
$$;

comment on function pgflow._lock_flow(text) is
  'Internal. Until the end of the transaction create_flow, add_step, ensure_flow_compiled and '
  'delete_flow_and_data of this flow, in any spelling, wait. Advisory key (1, hashtext(lower(flow_slug))).';
