-- Outside a transaction this is refused (25P01), and half an upgrade must not follow. (What came before warned.)
declare pgflow_migrate_transaction no scroll cursor for select;

-- A runner that went on after that refusal is disconnected.
do $guard$
begin
  if not exists (select from pg_catalog.pg_cursors c where c.name = 'pgflow_migrate_transaction') then
    raise warning 'this script has to run in one transaction: nothing was changed, and the session ends here';
    perform pg_catalog.pg_terminate_backend(pg_catalog.pg_backend_pid());
  end if;
end;
$guard$;

close pgflow_migrate_transaction;
