-- Every path of protocol 2 begins here. Runs of other protocols are returned, not locked.
create or replace function pgflow._v2_lock_run(p_run_id uuid)
returns pgflow.runs
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  run pgflow.runs;
begin
  select r.* into run from pgflow.runs r where r.run_id = p_run_id;
  if exists (select from pgflow.run_work work where work.run_id = run.run_id) then
    -- A row, all of it NULL, when it was deleted meanwhile.
    select r.* into run from pgflow.runs r where r.run_id = p_run_id for update;
  end if;
  return run;
end;
$$;

comment on function pgflow._v2_lock_run(uuid) is
  'Internal. A run, locked if it is of protocol 2; its run_id is NULL when there is no such run.';
