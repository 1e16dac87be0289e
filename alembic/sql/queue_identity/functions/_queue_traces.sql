-- Everything in PGMQ that bears the name of a queue; and, if asked, what would be in the way of creating it.
create or replace function pgflow._queue_traces(p_queue_name text, p_derived boolean)
returns text[]
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select coalesce(array_agg(trace.what order by trace.what), '{}')
  from (
    select format('pgmq.meta has a row "%s"', meta.queue_name) as what
    from pgmq.meta meta
    where lower(meta.queue_name) = p_queue_name
    union all
    select format('pgmq.%s exists', relation.relname)
    from pg_catalog.pg_class relation
    join pg_catalog.pg_namespace schema on schema.oid = relation.relnamespace
    where schema.nspname = 'pgmq'
      and relation.relname in ('q_' || p_queue_name, 'a_' || p_queue_name)
    union all
    -- PGMQ derives the names of indexes and of the sequence; a queue may be called like one of them.
    select format('pgmq.%s exists', relation.relname)
    from pg_catalog.pg_class relation
    join pg_catalog.pg_namespace schema on schema.oid = relation.relnamespace
    where p_derived
      and schema.nspname = 'pgmq'
      and relation.relname = any (array[
        'q_' || p_queue_name || '_pkey', 'a_' || p_queue_name || '_pkey',
        'q_' || p_queue_name || '_vt_idx', 'q_' || p_queue_name || '_msg_id_seq',
        'archived_at_idx_' || p_queue_name
      ])
  ) as trace;
$$;

comment on function pgflow._queue_traces(text, boolean) is
  'Internal. Metadata rows (in any spelling) and tables of the queue of this canonical name; with p_derived '
  'also the indexes and the sequence that creating it would make. Empty when there is nothing.';
