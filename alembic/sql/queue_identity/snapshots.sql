-- A backup or another reader of old snapshots that has begun while the locks were held waits for them, and would find
-- the rewritten tables empty, without an error. Better repeat the upgrade than spoil a backup. See fence.sql.
do $snapshots$
declare
  old_snapshots text;
begin
  perform pg_stat_clear_snapshot();
  select string_agg(format('%s (%s)', a.pid, a.application_name), ', ' order by a.pid) into old_snapshots
  from pg_catalog.pg_stat_activity a
  where a.datname = current_database()
    and a.pid <> pg_backend_pid()
    and a.backend_xmin is not null
    and (a.state like 'idle in transaction%' or a.application_name = 'pg_dump');
  if old_snapshots is not null then
    raise exception 'snapshots from before the upgrade have been taken meanwhile: pid %', old_snapshots
      using errcode = 'lock_not_available', hint = 'Nothing was changed. Repeat when they have ended.';
  end if;
end;
$snapshots$;
