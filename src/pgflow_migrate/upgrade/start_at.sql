-- This script starts from the revision that pgflow_migrate.start_at names. A database that records none is
-- taken to be there (the preflight looks again); one that records another is refused.
do $start$
declare
  wanted constant text := current_setting('pgflow_migrate.start_at');
  recorded text[];
  speaks_protocol_2 boolean;
begin
  if not exists (
    select from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'pgflow_migrate' and c.relname = 'alembic_version'
  ) then
    create table pgflow_migrate.alembic_version (
      version_num varchar(32) not null,
      constraint alembic_version_pkc primary key (version_num)
    );
  end if;
  select coalesce(array_agg(v.version_num::text), '{}') into recorded from pgflow_migrate.alembic_version v;
  if recorded = '{}' then
    speaks_protocol_2 := to_regclass('pgflow.run_work') is not null;
    if not (case wanted
      when 'dirty_runs' then speaks_protocol_2
      when 'queue_identity' then
        to_regprocedure('pgflow.claim_tasks(text, text, bigint[], uuid)') is not null and not speaks_protocol_2
      -- 0.16.0 dropped the third argument of the workers' start-up call.
      else (wanted = 'core_0_16_0') = (to_regprocedure('pgflow.ensure_flow_compiled(text, jsonb)') is not null)
    end) then
      raise exception 'this script starts from revision %, but the database is of another release', wanted
        using hint = 'pgflow-migrate status says which. Make a script that starts from there: --from.';
    end if;
    insert into pgflow_migrate.alembic_version (version_num) values (wanted);
  elsif recorded <> array[wanted] then
    raise exception 'this script starts from revision %, but the database is at %',
      wanted, array_to_string(recorded, ', ')
      using hint = case
        when 'dirty_runs' = any (recorded) then 'The database is upgraded already: there is nothing to do.'
        else 'Make a script that starts from where the database is.'
      end;
  end if;
end;
$start$;
