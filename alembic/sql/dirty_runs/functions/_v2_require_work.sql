-- A run of protocol 2 has its work row from start to deletion: looked at when the transaction ends.
create or replace function pgflow._v2_require_work()
returns trigger
language plpgsql
-- Who writes need not be allowed to see what he would break (grants, row level security).
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  run_of constant uuid := case when tg_op = 'DELETE' then old.run_id else new.run_id end;
begin
  if exists (select from pgflow.runs run where run.run_id = run_of)
    and not exists (select from pgflow.run_work work where work.run_id = run_of)
  then
    raise exception 'run % of protocol 2 has no work row', run_of
      using errcode = 'PF006', hint = 'Nothing was changed.';
  end if;
  return null;
end;
$$;

comment on function pgflow._v2_require_work() is
  'Internal, at the end of a transaction that makes a run of protocol 2 or removes a work row. PF006: such a run '
  'always has its work row.';
