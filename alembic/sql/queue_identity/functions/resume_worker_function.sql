-- A person has looked at what the worker could not judge: HTTP may start it again.
create or replace function pgflow.resume_worker_function(function_name text)
returns boolean
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  update pgflow.worker_functions target
  set paused_at = null, pause_reason = null, updated_at = clock_timestamp()
  where target.function_name = resume_worker_function.function_name and target.paused_at is not null;
  return found;
end;
$$;

comment on function pgflow.resume_worker_function(text) is
  'Lifts the pause that claim_tasks() has put on a worker function. True when it was paused.';
