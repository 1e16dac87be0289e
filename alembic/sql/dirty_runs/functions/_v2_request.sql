-- A request for orchestration. Back-off and attention stay as they are.
create or replace function pgflow._v2_request(p_run_id uuid)
returns void
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  update pgflow.run_work work
  set requested_generation = work.requested_generation + 1,
      requested_at = coalesce(work.requested_at, clock_timestamp()),
      state = case work.state when 'clean' then 'pending' else work.state end
  where work.run_id = p_run_id;
$$;

comment on function pgflow._v2_request(uuid) is
  'Internal, under the run''s lock. One generation more; clean work becomes pending. 23514 at generation_max.';
