-- Looks at the array's header, never at its elements' number by expanding them.
create or replace function pgflow._v2_is_singleton(p_msg_ids bigint[])
returns boolean
language sql
immutable
parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select p_msg_ids is null
    or cardinality(p_msg_ids) = 0
    or (
      cardinality(p_msg_ids) = 1
      and array_ndims(p_msg_ids) = 1
      and p_msg_ids[array_lower(p_msg_ids, 1)] is not null
    );
$$;

comment on function pgflow._v2_is_singleton(bigint[]) is
  'Internal. Whether a call names at most one message: NULL, no element, or one that is not NULL. Repeated ids are '
  'more than one.';
