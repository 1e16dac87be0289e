"""Which schemas there are, and every catalogue fact about the objects of some, as text that can be compared.

More than a release's snapshot holds: owners, privileges, comments, storage options, extension membership and
the file that a table is stored in, so that nothing an audit or a failed upgrade might leave behind escapes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

_FACTS = """
with wanted as (
  select n.oid, n.nspname from pg_catalog.pg_namespace n where n.nspname = any (%(schemas)s::text[])
), relation as (
  select c.*, w.nspname,
    case c.relkind
      when 'r' then 'table' when 'p' then 'partitioned table' when 'i' then 'index' when 'I' then 'index'
      when 'S' then 'sequence' when 'v' then 'view' when 'm' then 'materialized view' when 'c' then 'type'
      when 'f' then 'foreign table' else c.relkind::text
    end || ' ' || pg_catalog.format('%%I.%%I', w.nspname, c.relname) as name
  from pg_catalog.pg_class c join wanted w on w.oid = c.relnamespace
), routine as (
  select p.*, pg_catalog.format('function %%I.%%I(%%s)', w.nspname, p.proname,
    pg_catalog.pg_get_function_identity_arguments(p.oid)) as name
  from pg_catalog.pg_proc p join wanted w on w.oid = p.pronamespace
), data_type as (
  select t.*, pg_catalog.format('type %%I.%%I', w.nspname, t.typname) as name
  from pg_catalog.pg_type t join wanted w on w.oid = t.typnamespace
  where t.typtype in ('e', 'd', 'r')
)
select 'schema ' || nspname, 'exists', null
from pg_catalog.pg_namespace where nspname !~ '^pg_(temp|toast)'
union all
select 'schema ' || w.nspname, 'owner and privileges',
  pg_catalog.concat_ws(' ', n.nspowner::regrole, n.nspacl::text)
from wanted w join pg_catalog.pg_namespace n on n.oid = w.oid
union all
select name, 'relation', pg_catalog.concat_ws(' ', 'owner', relowner::regrole, 'persistence', relpersistence,
  'options', coalesce(reloptions::text, '-'), 'privileges', coalesce(relacl::text, '-'),
  'row security', relrowsecurity, relforcerowsecurity, 'replica identity', relreplident,
  'partition', relispartition, 'file', case when relkind in ('r', 'i', 'S', 'm') then relfilenode end)
from relation
union all
select r.name, 'column ' || a.attnum || ' ' || a.attname, pg_catalog.concat_ws(' ',
  pg_catalog.format_type(a.atttypid, a.atttypmod), case when a.attnotnull then 'not null' end,
  'default ' || pg_catalog.pg_get_expr(d.adbin, d.adrelid), 'identity ' || nullif(a.attidentity::text, ''),
  'generated ' || nullif(a.attgenerated::text, ''), 'collation ' || a.attcollation::regcollation,
  'privileges ' || a.attacl::text)
from relation r
join pg_catalog.pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
left join pg_catalog.pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
where r.relkind in ('r', 'p', 'v', 'm', 'f', 'c')
union all
select r.name, 'constraint ' || k.conname, pg_catalog.concat_ws(' ', pg_catalog.pg_get_constraintdef(k.oid),
  case when not k.convalidated then 'unvalidated' end)
from relation r join pg_catalog.pg_constraint k on k.conrelid = r.oid
union all
select r.name, 'definition', pg_catalog.concat_ws(' ', pg_catalog.pg_get_indexdef(r.oid),
  case when not x.indisvalid then 'invalid' end, case when x.indisreplident then 'replica identity' end)
from relation r join pg_catalog.pg_index x on x.indexrelid = r.oid
union all
select r.name, 'trigger ' || t.tgname, pg_catalog.pg_get_triggerdef(t.oid) || ' ' || t.tgenabled::text
from relation r join pg_catalog.pg_trigger t on t.tgrelid = r.oid and not t.tgisinternal
union all
select r.name, 'rule ' || u.rulename, pg_catalog.pg_get_ruledef(u.oid) || ' ' || u.ev_enabled::text
from relation r join pg_catalog.pg_rewrite u on u.ev_class = r.oid
union all
select r.name, 'policy ' || y.polname, pg_catalog.concat_ws(' ', y.polcmd, y.polpermissive, y.polroles::text,
  pg_catalog.pg_get_expr(y.polqual, y.polrelid), pg_catalog.pg_get_expr(y.polwithcheck, y.polrelid))
from relation r join pg_catalog.pg_policy y on y.polrelid = r.oid
union all
select r.name, 'sequence', pg_catalog.concat_ws(' ', s.seqtypid::regtype, s.seqstart, s.seqincrement,
  s.seqmin, s.seqmax, s.seqcache, s.seqcycle,
  'owned by ' || o.refobjid::regclass::text || '.' || o.refobjsubid)
from relation r
join pg_catalog.pg_sequence s on s.seqrelid = r.oid
left join pg_catalog.pg_depend o on o.classid = 'pg_catalog.pg_class'::regclass and o.objid = r.oid
  and o.objsubid = 0 and o.refclassid = 'pg_catalog.pg_class'::regclass and o.deptype in ('a', 'i')
union all
select name, 'definition', case prokind
  when 'a' then pg_catalog.pg_get_function_result(oid) else pg_catalog.pg_get_functiondef(oid) end
from routine
union all
select name, 'owner and privileges', pg_catalog.concat_ws(' ', proowner::regrole, proacl::text) from routine
union all
select name, 'type', pg_catalog.concat_ws(' ', typowner::regrole, typacl::text, typtype,
  pg_catalog.format_type(nullif(typbasetype, 0), typtypmod), typnotnull, typdefault,
  (select pg_catalog.string_agg(e.enumlabel, ', ' order by e.enumsortorder)
   from pg_catalog.pg_enum e where e.enumtypid = data_type.oid),
  (select pg_catalog.string_agg(pg_catalog.pg_get_constraintdef(k.oid), ', ' order by k.conname)
   from pg_catalog.pg_constraint k where k.contypid = data_type.oid))
from data_type
union all
select coalesce(
    (select r.name from relation r where d.classoid = 'pg_catalog.pg_class'::regclass and r.oid = d.objoid),
    (select p.name from routine p where d.classoid = 'pg_catalog.pg_proc'::regclass and p.oid = d.objoid),
    (select 'schema ' || w.nspname from wanted w
     where d.classoid = 'pg_catalog.pg_namespace'::regclass and w.oid = d.objoid)
  ) as name, 'comment ' || d.objsubid, d.description
from pg_catalog.pg_description d
where d.classoid in ('pg_catalog.pg_class'::regclass, 'pg_catalog.pg_proc'::regclass,
  'pg_catalog.pg_namespace'::regclass)
  and d.objoid in (select oid from relation union all select oid from routine
    union all select oid from wanted)
union all
select coalesce(
    (select r.name from relation r where d.classid = 'pg_catalog.pg_class'::regclass and r.oid = d.objid),
    (select p.name from routine p where d.classid = 'pg_catalog.pg_proc'::regclass and p.oid = d.objid),
    (select 'schema ' || w.nspname from wanted w
     where d.classid = 'pg_catalog.pg_namespace'::regclass and w.oid = d.objid)
  ), 'member of extension', e.extname
from pg_catalog.pg_depend d
join pg_catalog.pg_extension e on e.oid = d.refobjid
where d.refclassid = 'pg_catalog.pg_extension'::regclass and d.deptype = 'e'
  and d.classid in ('pg_catalog.pg_class'::regclass, 'pg_catalog.pg_proc'::regclass,
    'pg_catalog.pg_namespace'::regclass)
  and d.objid in (select oid from relation union all select oid from routine
    union all select oid from wanted)
union all
select 'extension ' || extname, 'version', extversion || ' ' || extnamespace::regnamespace
from pg_catalog.pg_extension
union all
select 'event trigger ' || evtname, 'definition', pg_catalog.concat_ws(' ', evtevent, evtenabled,
  evtfoid::regproc, evttags::text)
from pg_catalog.pg_event_trigger
union all
select 'default privileges', pg_catalog.concat_ws(' ', defaclrole::regrole, w.nspname, defaclobjtype),
  defaclacl::text
from pg_catalog.pg_default_acl left join wanted w on w.oid = defaclnamespace
where w.oid is not null or defaclnamespace = 0
"""


def facts(connection: psycopg.Connection[Any], schemas: Sequence[str]) -> dict[str, str]:
    """Every fact about the objects of ``schemas``, as ``{"<object>: <kind of fact>": "<text>"}``."""
    with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        cursor.execute(_FACTS, {"schemas": list(schemas)})
        return {f"{name}: {fact}": text or "" for name, fact, text in cursor}
