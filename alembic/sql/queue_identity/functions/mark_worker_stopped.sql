-- mark_worker_stopped(worker_id): a worker says that it has stopped.
-- Why: ensure_workers() then need not wait for the heartbeat to grow old.
-- As before; new is the pinned search_path.

create or replace function pgflow.mark_worker_stopped(worker_id uuid)
returns void
language sql
set search_path = pg_catalog, pg_temp
as $function$
  update pgflow.workers as worker
  set stopped_at = clock_timestamp()
  where worker.worker_id = mark_worker_stopped.worker_id;
$function$;

comment on function pgflow.mark_worker_stopped(uuid) is
  'Sets stopped_at to the wall clock; an unknown worker is ignored.';
