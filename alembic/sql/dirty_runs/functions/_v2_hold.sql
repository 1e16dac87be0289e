-- What a run of protocol 2 is still needed for. Deletion, recompilation and changes of its definition wait for NULL.
create or replace function pgflow._v2_hold(p_run_id uuid)
returns text
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  select case
    when run.status = 'started' then 'it is live'
    when work.state = 'attention' then 'its work needs attention'
    when work.state <> 'clean' then 'its work is pending'
    when exists (
      select from pgflow.task_claims claim where claim.run_id = run.run_id and claim.state = 'active'
    ) then 'it has an active claim'
    when kept.until > clock_timestamp() then format('its replay evidence is kept until %s', kept.until)
  end
  from pgflow.run_work work
  join pgflow.runs run on run.run_id = work.run_id
  cross join lateral (
    select coalesce(run.completed_at, run.failed_at)
      + make_interval(secs => (pgflow._v2_limits() ->> 'replay_horizon_seconds')::integer)
  ) as kept (until)
  where work.run_id = p_run_id;
$$;

comment on function pgflow._v2_hold(uuid) is
  'Internal. Why a run of protocol 2 must stay, in words; NULL when it may go: it is over, its work is clean, no '
  'claim is active, and its evidence is older than replay_horizon_seconds. NULL for other runs.';
