-- Whether a queue is what pgmq.create() makes, as far as the runtime needs it.
create or replace function pgflow._queue_faults(p_queue_name text)
returns text[]
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  with part (prefix, name) as (
    values ('q_', 'q_' || p_queue_name), ('a_', 'a_' || p_queue_name)
  ),
  relation as (
    select part.prefix, part.name, c.oid, c.relkind, c.relpersistence
    from part
    left join pg_catalog.pg_class c
      on c.relname = part.name
      and c.relnamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = 'pgmq')
  ),
  wanted (prefix, name, type) as (
    values
      ('q_', 'msg_id', 'bigint'), ('q_', 'read_ct', 'integer'), ('q_', 'enqueued_at', 'timestamp with time zone'),
      ('q_', 'vt', 'timestamp with time zone'), ('q_', 'message', 'jsonb'), ('q_', 'headers', 'jsonb'),
      ('a_', 'msg_id', 'bigint'), ('a_', 'read_ct', 'integer'), ('a_', 'enqueued_at', 'timestamp with time zone'),
      ('a_', 'archived_at', 'timestamp with time zone'), ('a_', 'vt', 'timestamp with time zone'),
      ('a_', 'message', 'jsonb'), ('a_', 'headers', 'jsonb')
  ),
  spelling as (
    select count(*) as count, string_agg(format('"%s"', meta.queue_name), ', ' order by meta.queue_name) as names
    from pgmq.meta meta
    where lower(meta.queue_name) = p_queue_name
  ),
  fault (what) as (
    select format('pgmq.meta has %s rows for it, not one%s', spelling.count, ': ' || spelling.names)
    from spelling
    where spelling.count > 1
    union all
    select 'pgmq.meta has no row for it'
    from spelling
    where spelling.count = 0
    union all
    select format('pgmq.%s is missing', relation.name)
    from relation
    where relation.oid is null
    union all
    select format('pgmq.%s is not an ordinary, logged table', relation.name)
    from relation
    where relation.relkind <> 'r' or relation.relpersistence <> 'p'
    union all
    select format('pgmq.%s has no column %s of type %s', relation.name, wanted.name, wanted.type)
    from relation
    join wanted on wanted.prefix = relation.prefix
    where relation.relkind = 'r'
      and not exists (
        select
        from pg_catalog.pg_attribute a
        where a.attrelid = relation.oid
          and a.attname = wanted.name
          and not a.attisdropped
          and a.atttypid = wanted.type::pg_catalog.regtype
      )
    union all
    select format('pgmq.%s has no primary key on msg_id', relation.name)
    from relation
    where relation.relkind = 'r'
      and not exists (
        select
        from pg_catalog.pg_index i
        join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
        where i.indrelid = relation.oid and i.indisprimary and i.indnkeyatts = 1 and a.attname = 'msg_id'
      )
  )
  select coalesce(array_agg(fault.what order by fault.what), '{}') from fault;
$$;

comment on function pgflow._queue_faults(text) is
  'Internal. What is wrong with the queue of this canonical name: not exactly one row in pgmq.meta (in any '
  'spelling), a missing or foreign relation, a missing column or primary key. Empty when it is whole.';
