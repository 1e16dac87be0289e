-- What tells the protocols apart: a run of protocol 2 has a work row.
create or replace function pgflow._speaks_protocol_2(p_run_id uuid)
returns boolean
language plpgsql
stable
-- Who works with protocol 1 need have no right on the tables of protocol 2, nor see their rows.
security definer
set search_path = pg_catalog, pg_temp
-- Where rows are hidden from the owner, too (FORCE ROW LEVEL SECURITY), this is an error, and not a wrong answer.
set row_security = off
as $$
begin
  -- Faster than return exists (select ...), and every call of protocol 1 asks.
  perform from pgflow.run_work work where work.run_id = p_run_id;
  return found;
end;
$$;

comment on function pgflow._speaks_protocol_2(uuid) is
  'Internal. Whether a run speaks protocol 2; false for an unknown one.';
