-- What is kept of an error text: no failure is refused because its text is long.
create or replace function pgflow._v2_bounded_error(p_error text)
returns text
language sql
immutable
parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select case
    when pgflow._v2_bytes(p_error) <= kept.bytes then p_error
    -- A character has at most four bytes.
    else left(p_error, (kept.bytes - 3) / 4) || '...'
  end
  from (select (pgflow._v2_limits() ->> 'error_bytes')::integer) as kept (bytes);
$$;

comment on function pgflow._v2_bounded_error(text) is
  'Internal. An error text; of one with more than error_bytes bytes as many characters as surely fit, and "...".';
