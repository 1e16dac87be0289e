-- setup_ensure_workers_cron(cron_interval): (re)schedule the pings and the clearing of the log.
-- Why errors of unscheduling are ignored: there is nothing to unschedule the first time.
-- Core behaviour: setup_ensure_workers_cron.

create function pgflow.setup_ensure_workers_cron(cron_interval text default '1 second')
returns text
language plpgsql
security definer
set search_path = pgflow, cron, pg_temp
as $function$
declare
  v_ensure_job bigint;
  v_cleanup_job bigint;
begin
  begin
    perform cron.unschedule('pgflow_ensure_workers');
  exception when others then
    null;
  end;
  begin
    perform cron.unschedule('pgflow_cleanup_logs');
  exception when others then
    null;
  end;

  v_ensure_job := cron.schedule(
    'pgflow_ensure_workers', setup_ensure_workers_cron.cron_interval, 'select pgflow.ensure_workers()'
  );
  v_cleanup_job := cron.schedule(
    'pgflow_cleanup_logs', '0 * * * *', 'select pgflow.cleanup_ensure_workers_logs()'
  );

  return format(
    'Scheduled pgflow_ensure_workers (every %s, job_id=%s) and pgflow_cleanup_logs (hourly, job_id=%s)',
    setup_ensure_workers_cron.cron_interval, v_ensure_job, v_cleanup_job
  );
end
$function$;

comment on function pgflow.setup_ensure_workers_cron(text) is
  'Schedules ensure_workers() at the given interval and cleanup_ensure_workers_logs() hourly, '
  'replacing both jobs.';
