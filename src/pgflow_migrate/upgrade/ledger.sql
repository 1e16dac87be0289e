-- The schema of pgflow-migrate itself: which revisions were applied, what they were (checksum), and when.
-- One upgrade at a time, also before there is a table to lock; the lock ends with the transaction.
do $ledger$
begin
  perform pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('pgflow-migrate', 0));

  -- A look in the catalogue, because "if not exists" demands the right to create even where nothing is missing.
  if not exists (select from pg_catalog.pg_namespace n where n.nspname = 'pgflow_migrate') then
    create schema pgflow_migrate;
    comment on schema pgflow_migrate is 'Which revisions pgflow-migrate has applied to this database.';
  end if;

  if not exists (
    select from pg_catalog.pg_class c
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'pgflow_migrate' and c.relname = 'schema_migrations'
  ) then
    create table pgflow_migrate.schema_migrations (
      name text primary key,
      checksum text not null,
      applied_at timestamptz not null default now()
    );
    comment on column pgflow_migrate.schema_migrations.checksum is
      'SHA-256 of the revision as it was applied, or as it was when an older database was adopted.';
  end if;
end;
$ledger$;
