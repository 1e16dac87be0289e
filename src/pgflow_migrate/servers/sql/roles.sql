-- Stand-in for the roles that every Supabase project has. Roles belong to the whole server, so this is
-- safe to repeat and to run from two databases at once.

do $roles$
declare
  v_role record;
begin
  for v_role in
    select * from (values
      ('anon', 'nologin noinherit'),
      ('authenticated', 'nologin noinherit'),
      ('service_role', 'nologin noinherit bypassrls')
    ) as r(name, options)
  loop
    if not exists (select from pg_catalog.pg_roles where rolname = v_role.name) then
      begin
        execute pg_catalog.format('create role %I %s', v_role.name, v_role.options);
      exception when duplicate_object or unique_violation then
        null;  -- another session was faster
      end;
    end if;
  end loop;
end
$roles$;
