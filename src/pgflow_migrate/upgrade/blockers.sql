-- Who stands in the way of the upgrade's locks, now: holders of locks on our tables, prepared transactions among them
-- (their locks have no pid), and transactions whose snapshot is older than the upgrade.
with holding as (
  select l.pid, l.virtualtransaction,
    array_agg(distinct case
      when l.locktype = 'advisory' then 'pgflow-migrate itself'
      else format('%I.%I', n.nspname, c.relname)
    end) as holds
  from pg_catalog.pg_locks l
  left join pg_catalog.pg_class c on l.locktype = 'relation' and c.oid = l.relation and c.relkind in ('r', 'p')
  left join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where l.granted and l.pid is distinct from pg_backend_pid()
    and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
    and (
      n.nspname in ('pgflow', 'pgmq', 'pgflow_migrate')
      or (
        l.locktype = 'advisory' and l.objsubid = 1
        and (l.classid::bigint << 32 | l.objid::bigint) = hashtextextended('pgflow-migrate', 0)
      )
    )
  group by l.pid, l.virtualtransaction
),
blocker as (
  select a.pid, a.usename::text as role, a.application_name as application, a.state, a.xact_start, a.query_start,
    left(regexp_replace(coalesce(a.query, ''), '[[:space:]]+', ' ', 'g'), 120) as query,
    coalesce(h.holds, '{}') || case when s.old then array['a snapshot from before the upgrade'] else '{}' end as holds
  from pg_catalog.pg_stat_activity a
  cross join lateral (
    select a.backend_xmin is not null
      and (a.state like 'idle in transaction%' or a.application_name = 'pg_dump') as old
  ) s
  left join holding h on h.pid = a.pid
  where a.datname = current_database() and a.pid <> pg_backend_pid() and (h.pid is not null or s.old)
  union all
  select null, x.owner::text, x.gid, 'prepared transaction', x.prepared, null, '', h.holds
  from pg_catalog.pg_prepared_xacts x
  join pg_catalog.pg_locks own on own.locktype = 'transactionid' and own.transactionid = x.transaction and own.granted
  join holding h on h.pid is null and h.virtualtransaction = own.virtualtransaction
  where x.database = current_database()
)
select b.pid, coalesce(b.role, '') as user, coalesce(b.application, '') as application, coalesce(b.state, '') as state,
  extract(epoch from clock_timestamp() - b.xact_start)::float8 as transaction_age,
  extract(epoch from clock_timestamp() - b.query_start)::float8 as query_age,
  b.query, b.holds
from blocker b
order by b.xact_start
limit 20
