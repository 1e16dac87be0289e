-- The new tables belong to the role that has the old ones, whoever runs the upgrade, and each may be used by those who
-- may use the old table beside it: runs of protocol 2 are made and carried on by the same roles.
-- Where row level security keeps rows of the old table apart, it is on for the new one, too, by policies: who sees a
-- run or a task sees what belongs to it, who may update it may write that, and nobody else.
do $new$
declare
  pair record;
  belongs text;
  statement text;
begin
  for pair in
    select
      new.oid, new.oid::regclass as name, old.oid as old_oid, old.relowner,
      new.relowner <> old.relowner as of_another, old.relrowsecurity
    from (values ('run_work', 'runs'), ('task_claims', 'step_tasks')) as p (new_name, old_name)
    join pg_catalog.pg_class new on new.relname = p.new_name and new.relnamespace = 'pgflow'::regnamespace
    join pg_catalog.pg_class old on old.relname = p.old_name and old.relnamespace = 'pgflow'::regnamespace
    order by 1
  loop
    if pair.of_another then
      begin
        execute format('alter table %s owner to %s', pair.name, pair.relowner::regrole);
      exception
        when insufficient_privilege then
          null;  -- A member of the owner that may not become it (PostgreSQL 16: no SET option) keeps the table.
      end;
    end if;

    if pair.relrowsecurity then
      execute format('alter table %s enable row level security', pair.name);
      belongs := format(
        'exists (select from %s old where %s', pair.old_oid::regclass,
        case pair.name
          when 'pgflow.run_work'::regclass then 'old.run_id = run_work.run_id'
          else '(old.run_id, old.step_slug, old.task_index) = '
            '(task_claims.run_id, task_claims.step_slug, task_claims.task_index)'
        end
      );
      execute format('create policy as_what_it_belongs_to on %s for select using (%s))', pair.name, belongs);
      -- To lock a row is to be allowed to update it, also by its policies. Protocol 2 has locked the run before.
      execute format(
        'create policy inserted_as_what_it_belongs_to on %s for insert with check (%s for key share))',
        pair.name, belongs
      );
      execute format(
        'create policy updated_as_what_it_belongs_to on %s for update using (%s for key share))', pair.name, belongs
      );
      execute format(
        'create policy deleted_as_what_it_belongs_to on %s for delete using (%s for key share))', pair.name, belongs
      );
    end if;

    for statement in
      select format(
        'grant %s on table %s to %s', string_agg(a.privilege_type, ', ' order by a.privilege_type), pair.name,
        case a.grantee when 0 then 'public' else a.grantee::regrole::text end
      )
      from pg_catalog.pg_class old
      cross join lateral aclexplode(old.relacl) a
      where old.oid = pair.old_oid and a.grantee <> old.relowner
        -- Of a newer server: nothing that this table would not have by itself.
        and a.privilege_type in ('SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER')
      group by a.grantee
    loop
      execute statement;
    end loop;
  end loop;
end;
$new$;
