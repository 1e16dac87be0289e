-- cleanup_ensure_workers_logs(retention_hours): keep pg_cron's log short.
-- Why: a job that runs every second writes 86,400 rows a day.
-- Core behaviour: cleanup_ensure_workers_logs.

create function pgflow.cleanup_ensure_workers_logs(retention_hours integer default 24)
returns table (cron_deleted bigint)
language sql
security definer
set search_path = pgflow, cron, pg_temp
as $function$
  with deleted as (
    delete from cron.job_run_details as details
    where details.end_time < now() - make_interval(hours => cleanup_ensure_workers_logs.retention_hours)
    returning 1
  )
  select count(*) from deleted
$function$;

comment on function pgflow.cleanup_ensure_workers_logs(integer) is
  'Deletes the log rows, of all cron jobs, that ended more than the given number of hours ago.';
