-- A work row goes only with its run: looked at when the transaction ends.
create or replace function pgflow._v2_require_work()
returns trigger
language plpgsql
-- Who writes need not be allowed to see what he would break (grants, row level security).
security definer
set search_path = pg_catalog, pg_temp
-- Where rows are hidden from the owner, too (FORCE ROW LEVEL SECURITY), this is an error, and not a wrong answer.
set row_security = off
as $$
begin
  -- Who may execute this may put it on a table of his own, whose columns are of types whose casts are his code: OLD and
  -- NEW are not looked at before.
  if tg_relid <> 'pgflow.run_work'::regclass then
    raise exception '% is not a table that this guards', tg_relid::regclass
      using errcode = 'trigger_protocol_violated';
  end if;

  if exists (select from pgflow.runs run where run.run_id = old.run_id)
    and not exists (select from pgflow.run_work work where work.run_id = old.run_id)
  then
    raise exception 'run % of protocol 2 has lost its work row', old.run_id
      using errcode = 'PF006', hint = 'Nothing was changed.';
  end if;
  return null;
end;
$$;

comment on function pgflow._v2_require_work() is
  'Internal, at the end of a transaction that removes a work row. PF006: its run is still there, and would be one of '
  'protocol 1.';
