-- Address and input of a run of protocol 2, and its end, are final; its output is bounded.
create or replace function pgflow._v2_guard_run()
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
  if tg_relid <> 'pgflow.runs'::regclass then
    raise exception '% is not a table that this guards', tg_relid::regclass
      using errcode = 'trigger_protocol_violated';
  end if;

  if exists (select from pgflow.run_work work where work.run_id = old.run_id) then
    raise exception 'run % of protocol 2: %', old.run_id,
      case
        when tg_name = 'protocol_2_end' and (old.status = 'started' or new.status = old.status)
          then 'its output is bounded'
        else 'address, input and a final status are never changed'
      end
      using errcode = 'PF006', hint = 'Nothing was changed.';
  end if;
  return null;
end;
$$;

comment on function pgflow._v2_guard_run() is
  'Internal, triggers on runs. PF006: of a run of protocol 2 address, input and final status never change, and its '
  'output has at most run_output_bytes bytes.';
