-- The slug rules of flows and steps alike, shared with src/pgflow_migrate/slugs.py.
create or replace function pgflow.is_valid_slug(slug text)
returns boolean
language plpgsql
immutable
set search_path = pg_catalog, pg_temp
as $$
begin
  return slug is not null
    and length(slug) between 1 and 128
    and slug ~ '^[a-zA-Z][a-zA-Z0-9_]*$'
    and slug !~ '_$'
    and slug !~ '__'
    and slug not in ('run');
end;
$$;

comment on function pgflow.is_valid_slug(text) is
  'Whether a flow or step slug is allowed: 1 to 128 ASCII letters, digits and single inner underscores, '
  'beginning with a letter, not the reserved word "run". NULL is not. "__" belongs to generated queue '
  'names.';
