-- Identity of a canonical text.
create or replace function pgflow._v2_sha256(p_canonical text)
returns bytea
language sql
immutable
parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select sha256(convert_to(p_canonical, 'UTF8'));
$$;

comment on function pgflow._v2_sha256(text) is
  'Internal. SHA-256 of a text''s UTF-8 bytes.';
