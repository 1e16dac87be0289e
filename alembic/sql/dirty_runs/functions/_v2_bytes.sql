-- Size of a text as the contract counts it, whatever the database's encoding.
create or replace function pgflow._v2_bytes(p_text text)
returns integer
language sql
immutable
parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select octet_length(convert_to(p_text, 'UTF8'));
$$;

comment on function pgflow._v2_bytes(text) is
  'Internal. Bytes of a text in UTF-8.';
