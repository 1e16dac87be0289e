-- The catalogue of schema $1: a row (kind, name, attributes) for each object.
-- Definitions only: no function bodies, comments, owners or storage parameters.
-- The caller sets search_path to pg_catalog, so that every other name is printed with its schema.
with chosen as (
  select oid, nspname, nspowner, nspacl
  from pg_namespace
  where nspname = $1::name
),

relation as (
  select
    c.oid, c.relname, c.relkind, c.relpersistence, c.relowner, c.relacl,
    c.relrowsecurity, c.relforcerowsecurity
  from pg_class as c
  join chosen on chosen.oid = c.relnamespace
),

routine as (
  select p.*, format('%s(%s)', p.proname, oidvectortypes(p.proargtypes)) as signature
  from pg_proc as p
  join chosen on chosen.oid = p.pronamespace
),

type as (
  select t.*
  from pg_type as t
  join chosen on chosen.oid = t.typnamespace
),

col as (
  select
    relation.relname || '.' || a.attname as name,
    relation.oid as relation_oid, relation.relname, relation.relkind, relation.relowner,
    a.attname, a.attnum, a.attacl, a.attnotnull, a.attidentity, a.attgenerated,
    format_type(a.atttypid, a.atttypmod) as type,
    case when a.attcollation <> t.typcollation then a.attcollation::regcollation::text end as own_collation,
    pg_get_expr(d.adbin, d.adrelid) as expression
  from relation
  join pg_attribute as a on a.attrelid = relation.oid and a.attnum > 0 and not a.attisdropped
  join pg_type as t on t.oid = a.atttypid
  left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
),

-- What carries grants, with the grants that its owner's defaults give.
securable (kind, name, owner, acl, usual_acl) as (
  select 'schema', nspname::text, nspowner, nspacl, acldefault('n', nspowner)
  from chosen
  union all
  select 'table', relname, relowner, relacl, acldefault('r', relowner)
  from relation
  where relkind in ('r', 'p', 'v', 'm', 'f')
  union all
  select 'sequence', relname, relowner, relacl, acldefault('s', relowner)
  from relation
  where relkind = 'S'
  union all
  select 'column', name, relowner, attacl, acldefault('c', relowner)
  from col
  union all
  select 'function', signature, proowner, proacl, acldefault('f', proowner)
  from routine
),

-- Only deviations from the defaults, and not MAINTAIN (new in PostgreSQL 17): so that an untouched
-- object looks the same on every server.
deviation as (
  select
    s.kind, s.name,
    bool_and(g.given) as given,
    format(
      '%s to %s%s',
      g.privilege_type,
      case
        when g.grantee = s.owner then 'owner'
        when g.grantee = 0 then 'PUBLIC'
        else pg_get_userbyid(g.grantee)
      end,
      case when g.is_grantable then ' with grant option' end
    ) as privilege
  from securable as s
  cross join lateral (
    select true as given, * from aclexplode(s.acl)
    union all
    select false, * from aclexplode(s.usual_acl)
  ) as g
  where s.acl is not null
    and g.privilege_type <> 'MAINTAIN'
  group by s.kind, s.name, s.owner, g.grantee, g.privilege_type, g.is_grantable
  having count(distinct g.given) = 1
),

access as (
  select
    kind, name,
    jsonb_build_object(
      'granted', coalesce(jsonb_agg(privilege order by privilege) filter (where given), '[]'),
      'revoked', coalesce(jsonb_agg(privilege order by privilege) filter (where not given), '[]')
    ) as attributes
  from deviation
  group by kind, name
),

object (kind, name, attributes) as (
  select 'schema', nspname::text, '{}'::jsonb
  from chosen

  union all
  select
    'table', relname,
    jsonb_build_object(
      'kind', case relkind
        when 'r' then 'table' when 'p' then 'partitioned table' when 'v' then 'view'
        when 'm' then 'materialized view' when 'f' then 'foreign table'
      end,
      'persistence', case relpersistence when 'p' then 'permanent' when 'u' then 'unlogged' end,
      'row security', case when relforcerowsecurity then 'forced' when relrowsecurity then 'on' else 'off' end,
      'columns', (
        select coalesce(jsonb_agg(col.attname order by col.attnum), '[]')
        from col
        where col.relation_oid = relation.oid
      )
    )
  from relation
  where relkind in ('r', 'p', 'v', 'm', 'f')

  union all
  select
    'column', name,
    jsonb_build_object(
      'type', type,
      'nullable', not attnotnull,
      'default', case when attgenerated = '' then expression end,
      'identity', case attidentity when 'a' then 'always' when 'd' then 'by default' end,
      'generated', case when attgenerated <> '' then expression end,
      'collation', own_collation
    )
  from col
  where relkind in ('r', 'p', 'v', 'm', 'f')

  -- Not contype 'n': PostgreSQL 18 lists NOT NULL here too, the columns tell it on every server.
  union all
  select
    'constraint', relation.relname || '.' || k.conname,
    jsonb_build_object('definition', pg_get_constraintdef(k.oid))
  from pg_constraint as k
  join relation on relation.oid = k.conrelid
  where k.contype in ('p', 'u', 'f', 'c', 'x')

  -- An index that backs a constraint is told by the constraint.
  union all
  select
    'index', relation.relname || '.' || c.relname,
    jsonb_build_object(
      -- Without storage parameters, which change nothing but the layout.
      'definition', regexp_replace(pg_get_indexdef(i.indexrelid), ' WITH [(]([a-z_]+=''[^'']*''(, )?)+[)]', ''),
      'state', case when i.indisvalid and i.indisready and i.indislive then 'valid' else 'invalid' end
    )
  from pg_index as i
  join relation on relation.oid = i.indrelid
  join pg_class as c on c.oid = i.indexrelid
  where not exists (
    select
    from pg_constraint as k
    where k.conindid = i.indexrelid and k.contype in ('p', 'u', 'x')
  )

  union all
  select
    'trigger', relation.relname || '.' || t.tgname,
    jsonb_build_object(
      'definition', pg_get_triggerdef(t.oid),
      'enabled', case t.tgenabled when 'O' then 'origin' when 'D' then 'no' when 'R' then 'replica' else 'always' end
    )
  from pg_trigger as t
  join relation on relation.oid = t.tgrelid
  where not t.tgisinternal

  union all
  select
    'policy', relation.relname || '.' || p.polname,
    jsonb_build_object(
      'command', p.polcmd,
      'permissive', p.polpermissive,
      'using', pg_get_expr(p.polqual, p.polrelid),
      'check', pg_get_expr(p.polwithcheck, p.polrelid)
    )
  from pg_policy as p
  join relation on relation.oid = p.polrelid

  union all
  select
    'sequence', relation.relname,
    jsonb_build_object(
      'type', format_type(s.seqtypid, null),
      'start', s.seqstart, 'increment', s.seqincrement, 'minimum', s.seqmin, 'maximum', s.seqmax,
      'cycle', s.seqcycle
    )
  from pg_sequence as s
  join relation on relation.oid = s.seqrelid

  union all
  select
    'type', type.typname,
    jsonb_build_object(
      'kind', 'composite',
      'attributes', (
        select coalesce(jsonb_agg(col.attname || ' ' || col.type order by col.attnum), '[]')
        from col
        where col.relation_oid = type.typrelid
      )
    )
  from type
  join relation on relation.oid = type.typrelid and relation.relkind = 'c'

  union all
  select
    'type', type.typname,
    jsonb_build_object(
      'kind', 'enum',
      'labels', (
        select jsonb_agg(e.enumlabel order by e.enumsortorder)
        from pg_enum as e
        where e.enumtypid = type.oid
      )
    )
  from type
  where typtype = 'e'

  union all
  select
    'type', type.typname,
    jsonb_build_object(
      'kind', 'domain',
      'base', format_type(typbasetype, typtypmod),
      'nullable', not typnotnull,
      'default', typdefault,
      'checks', (
        select coalesce(jsonb_agg(pg_get_constraintdef(k.oid) order by k.conname), '[]')
        from pg_constraint as k
        where k.contypid = type.oid and k.contype = 'c'
      )
    )
  from type
  where typtype = 'd'

  union all
  select
    'function', signature,
    jsonb_build_object(
      'kind', case prokind
        when 'f' then 'function' when 'p' then 'procedure' when 'a' then 'aggregate' when 'w' then 'window'
      end,
      'arguments', pg_get_function_arguments(routine.oid),
      'result', pg_get_function_result(routine.oid),
      'language', (select l.lanname from pg_language as l where l.oid = prolang),
      'volatility', case provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
      'strict', proisstrict,
      'security definer', prosecdef,
      'parallel', case proparallel when 's' then 'safe' when 'r' then 'restricted' else 'unsafe' end,
      'leakproof', proleakproof,
      'cost', procost,
      'rows', prorows,
      'settings', coalesce(to_jsonb(proconfig), '[]')
    )
  from routine
)

select object.kind, object.name, object.attributes || coalesce(access.attributes, '{}') as attributes
from object
left join access using (kind, name)
order by object.kind, object.name
