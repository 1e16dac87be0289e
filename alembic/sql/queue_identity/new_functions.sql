-- New functions belong to the role that has the old ones, whoever runs the upgrade, and may be called by those who may
-- call the old ones: where EXECUTE was taken from PUBLIC, or default privileges withhold it, a worker's role would else
-- be refused by what complete_task() calls. What a worker calls itself goes to those who may call its predecessor.
do $new$
declare
  before constant jsonb := current_setting('pgflow_migrate.functions_before')::jsonb;
  new record;
  statement text;
begin
  for new in
    select p.oid::regprocedure as name, p.proowner::bigint <> (before ->> 'owner')::bigint as of_another
    from pg_catalog.pg_proc p
    where p.pronamespace = 'pgflow'::regnamespace and not before -> 'functions' @> to_jsonb(p.oid)
    order by 1
  loop
    if new.of_another then
      begin
        execute format('alter function %s owner to %s', new.name, ((before ->> 'owner')::oid)::regrole);
      exception
        when insufficient_privilege then
          null;  -- A member of the owner that may not become it (PostgreSQL 16: no SET option) keeps the function.
      end;
    end if;

    for statement in
      with old (grantee) as (
        select c.grantee::oid
        from pg_catalog.pg_proc p
        cross join lateral jsonb_array_elements_text(
          before -> case when p.proname in ('claim_tasks', 'ensure_flow_compiled') then 'workers' else 'callers' end
        ) as c (grantee)
        where p.oid = new.name
      ),
      has (grantee) as (
        select a.grantee
        from pg_catalog.pg_proc p
        cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        where p.oid = new.name
      )
      select format('grant execute on function %s to %s', new.name,
        case o.grantee when 0 then 'public' else o.grantee::regrole::text end)
      from old o
      where o.grantee not in (select h.grantee from has h)
      union all
      select format('revoke execute on function %s from public', new.name)
      where 0 in (select h.grantee from has h) and 0 not in (select o.grantee from old o)
    loop
      execute statement;
    end loop;
  end loop;
end;
$new$;
