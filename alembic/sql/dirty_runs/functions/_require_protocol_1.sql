-- What functions of protocol 1 that write to a run ask first. Where every task passes, they ask
-- _speaks_protocol_2() before: an IF is evaluated without a query of its own, a PERFORM is not.
create or replace function pgflow._require_protocol_1(p_run_id uuid)
returns void
language plpgsql
stable
-- Who calls need not be allowed to read pgflow.runs, and row level security must not hide a run.
security definer
set search_path = pg_catalog, pg_temp
-- Where rows are hidden from the owner, too (FORCE ROW LEVEL SECURITY), this is an error, and not a wrong answer.
set row_security = off
as $$
begin
  if exists (select from pgflow.run_work work where work.run_id = p_run_id) then
    raise exception 'run % does not speak protocol 1', p_run_id
      using errcode = 'PF005', hint = 'Nothing was changed. Its tasks are claimed and settled by claim_task_v2().';
  end if;
end;
$$;

comment on function pgflow._require_protocol_1(uuid) is
  'Internal. PF005 for a run of another protocol; nothing for one of protocol 1 or an unknown one.';
