-- The first run of protocol 2 that keeps a flow as it is.
create or replace function pgflow._v2_flow_hold(p_flow_slug text)
returns text
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  select format('run %s of protocol 2: %s', work.run_id, hold.reason)
  from pgflow.run_work work
  cross join lateral pgflow._v2_hold(work.run_id) as hold (reason)
  where work.flow_slug = p_flow_slug and hold.reason is not null
  limit 1;
$$;

comment on function pgflow._v2_flow_hold(text) is
  'Internal. Which run of protocol 2 a flow is held by, and why; NULL when none.';
