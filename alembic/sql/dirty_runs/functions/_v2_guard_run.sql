-- Identity of a run of protocol 2, and its end, are final.
create or replace function pgflow._v2_guard_run()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
  raise exception 'run % of protocol %: identity, input and a final status are never changed',
    old.run_id, old.protocol_version
    using errcode = 'PF006', hint = 'Nothing was changed.';
end;
$$;

comment on function pgflow._v2_guard_run() is
  'Internal, trigger on runs. PF006: a run''s protocol never changes; nor do, with protocol 2, its address, input, '
  'definition identity and final status.';
