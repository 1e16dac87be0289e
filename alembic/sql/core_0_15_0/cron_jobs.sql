-- The three cron jobs: ping workers, clear the log of jobs, requeue stalled tasks.
-- Why conditional: without pg_cron the operator calls the three functions by other means.
-- Core behaviour: cron jobs.

do $cron_jobs$
begin
  if to_regprocedure('cron.schedule(text, text, text)') is not null then
    perform pgflow.setup_ensure_workers_cron();
    perform pgflow.setup_requeue_stalled_tasks_cron();
  end if;
end
$cron_jobs$;
