-- This script starts from the revision that pgflow_migrate.start_at names; a database of another is refused. One that
-- records none is judged by what is in it, and then the preflight looks closer.
do $start$
declare
  wanted constant text := current_setting('pgflow_migrate.start_at');
  recorded text[];
  found text;
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
    found := case
      when to_regclass('pgflow.run_work') is not null then 'dirty_runs'
      when to_regprocedure('pgflow.claim_tasks(text, text, bigint[], uuid)') is not null then 'queue_identity'
      -- 0.16.0 dropped the third argument of the workers' start-up call.
      when to_regprocedure('pgflow.ensure_flow_compiled(text, jsonb)') is not null then 'core_0_16_0'
      -- 0.15.1 lets tasks end as cancelled.
      when exists (
        select from pg_catalog.pg_constraint o
        where o.conrelid = to_regclass('pgflow.step_tasks') and o.conname = 'valid_status'
          and strpos(pg_get_constraintdef(o.oid), '''cancelled''') > 0
      ) then 'core_0_15_1'
      else 'core_0_15_0'
    end;
    if found <> wanted then
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
