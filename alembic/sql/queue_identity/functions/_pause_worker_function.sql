-- ensure_workers() starts a paused function no more, until resume_worker_function().
create or replace function pgflow._pause_worker_function(p_worker_id uuid, p_reason text)
returns text
language sql
volatile
set search_path = pg_catalog, pg_temp
as $$
  -- The first reason stays: what comes later follows from it.
  update pgflow.worker_functions target
  set paused_at = coalesce(target.paused_at, clock_timestamp()),
      pause_reason = coalesce(target.pause_reason, p_reason),
      updated_at = clock_timestamp()
  from pgflow.workers worker
  where worker.worker_id = p_worker_id and target.function_name = worker.function_name
  returning target.function_name;
$$;

comment on function pgflow._pause_worker_function(uuid, text) is
  'Internal. Pauses the function that a worker belongs to, and returns its name; NULL when the worker or its '
  'function is not registered.';
