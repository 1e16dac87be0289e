-- Whether there is anything of protocol 2 to be deleted with a flow.
create or replace function pgflow._flow_speaks_protocol_2(p_flow_slug text)
returns boolean
language plpgsql
stable
-- As _speaks_protocol_2.
security definer
set search_path = pg_catalog, pg_temp
-- Where rows are hidden from the owner, too (FORCE ROW LEVEL SECURITY), this is an error, and not a wrong answer.
set row_security = off
as $$
begin
  return exists (select from pgflow.run_work work where work.flow_slug = p_flow_slug);
end;
$$;

comment on function pgflow._flow_speaks_protocol_2(text) is
  'Internal. Whether a flow has runs of protocol 2.';
