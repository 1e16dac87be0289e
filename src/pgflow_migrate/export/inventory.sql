-- Tables of queues, with what a copy needs to make them again, a row each. Reads catalogues alone.
with queue (name) as (
  select unnest(%(queues)s::text[])
),
relation as (
  select q.name as queue, p.part, c.oid, c.relname, c.relkind, c.relpersistence
  from queue q
  cross join (values (1, 'queue', 'q_'), (2, 'archive', 'a_')) as p (place, part, prefix)
  join pg_class c on c.relname = p.prefix || q.name
  join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'pgmq'
),
member as (
  select d.objid as oid, e.extname
  from pg_depend d
  join pg_extension e on e.oid = d.refobjid
  where d.classid = 'pg_class'::regclass and d.objsubid = 0
    and d.refclassid = 'pg_extension'::regclass and d.deptype = 'e'
),
-- Found by its dependency on the identity column: PGMQ does not promise its name.
sequence as (
  select r.oid as table_oid, s.oid, s.relname
  from relation r
  join pg_attribute a on a.attrelid = r.oid and a.attname = 'msg_id' and not a.attisdropped
  join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid
    and d.refobjsubid = a.attnum and d.classid = 'pg_class'::regclass and d.deptype = 'i'
  join pg_class s on s.oid = d.objid and s.relkind = 'S' and s.relnamespace = 'pgmq'::regnamespace
)
select
  r.queue, r.part, r.relname::text,
  r.relkind::text, r.relpersistence = 'u',
  has_table_privilege(r.oid, 'select'), row_security_active(r.oid),
  coalesce((select m.extname = 'pgmq' from member m where m.oid = r.oid), false),
  (
    select jsonb_agg(jsonb_build_array(
      a.attname, format_type(a.atttypid, null), a.attnotnull,
      case a.attidentity when 'a' then 'always' when 'd' then 'by default' else '' end,
      case when a.attgenerated = '' and a.attidentity = '' then coalesce(pg_get_expr(d.adbin, d.adrelid), '')
        else '' end,
      a.attgenerated <> ''
    ) order by a.attnum)
    from pg_attribute a
    left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
  ),
  (
    select coalesce(jsonb_agg(jsonb_build_object(
      'name', c.relname, 'unique', i.indisunique, 'primary', i.indisprimary,
      'columns', array(
        select a.attname from unnest(i.indkey::int2[]) with ordinality as k (number, place)
        join pg_attribute a on a.attrelid = r.oid and a.attnum = k.number
        order by k.place
      )
    ) order by not i.indisprimary, c.relname), '[]')
    from pg_index i
    join pg_class c on c.oid = i.indexrelid
    join pg_am m on m.oid = c.relam and m.amname = 'btree'
    where i.indrelid = r.oid and i.indisvalid and i.indpred is null and i.indexprs is null
      and i.indnatts = i.indnkeyatts
  ),
  s.relname::text,
  has_sequence_privilege(s.oid, 'select'),
  coalesce((select m.extname = 'pgmq' from member m where m.oid = s.oid), false)
from relation r
left join sequence s on s.table_oid = r.oid and r.part = 'queue'
order by r.queue collate "C", r.part = 'archive'
