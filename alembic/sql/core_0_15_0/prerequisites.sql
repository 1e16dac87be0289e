-- What pgflow stands on: PGMQ, and pg_net, pg_cron and Vault where the server has them.
-- Why only PGMQ is needed: it holds the messages. The others ping workers and run jobs by the clock,
--   which can be done by other means. Events call realtime.send, which belongs to the platform.
-- Core behaviour: environment the SQL relies on.

do $prerequisites$
declare
  v_extension text;
begin
  -- PGMQ may be an extension or have been run from plain SQL; both leave this type.
  if to_regtype('pgmq.message_record') is null then
    create extension pgmq;
  end if;

  -- Older PGMQ has no message headers.
  if not exists (
    select
    from pg_catalog.pg_attribute
    where attrelid = to_regclass('pgmq.message_record')
      and attname = 'headers'
      and not attisdropped
  ) then
    raise exception 'INCOMPATIBLE PGMQ VERSION DETECTED: pgflow needs PGMQ 1.5.0 or newer'
      using errcode = 'feature_not_supported',
            hint = 'Upgrade PGMQ (alter extension pgmq update), then repeat.';
  end if;

  foreach v_extension in array array['pg_net', 'pg_cron', 'supabase_vault'] loop
    continue when exists (select from pg_catalog.pg_extension where extname = v_extension);
    continue when not exists (select from pg_catalog.pg_available_extensions where name = v_extension);
    begin
      execute format('create extension %I cascade', v_extension);
    exception when others then
      -- Available is not enough: it may take a superuser, a preloaded library or another database.
      raise warning 'extension % is available but could not be created: %', v_extension, sqlerrm;
    end;
  end loop;
end
$prerequisites$;
