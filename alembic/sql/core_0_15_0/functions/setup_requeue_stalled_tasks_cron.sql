-- setup_requeue_stalled_tasks_cron(cron_interval): (re)schedule the recovery of stalled tasks.
-- Why errors of unscheduling are ignored: there is nothing to unschedule the first time.
-- Core behaviour: setup_requeue_stalled_tasks_cron.

create function pgflow.setup_requeue_stalled_tasks_cron(cron_interval text default '15 seconds')
returns text
language plpgsql
security definer
set search_path = pgflow, cron, pg_temp
as $function$
declare
  v_job bigint;
begin
  begin
    perform cron.unschedule('pgflow_requeue_stalled_tasks');
  exception when others then
    null;
  end;

  v_job := cron.schedule(
    'pgflow_requeue_stalled_tasks',
    setup_requeue_stalled_tasks_cron.cron_interval,
    'select pgflow.requeue_stalled_tasks()'
  );

  return format(
    'Scheduled pgflow_requeue_stalled_tasks (every %s, job_id=%s)',
    setup_requeue_stalled_tasks_cron.cron_interval, v_job
  );
end
$function$;

comment on function pgflow.setup_requeue_stalled_tasks_cron(text) is
  'Schedules requeue_stalled_tasks() at the given interval, replacing the job.';
