-- track_worker_function(function_name, start_mode): a worker registers the function it runs in.
-- As before; new is the pinned search_path.

create or replace function pgflow.track_worker_function(function_name text, start_mode text default 'http')
returns void
language sql
set search_path = pg_catalog, pg_temp
as $function$
  insert into pgflow.worker_functions (function_name, start_mode, updated_at)
  values (track_worker_function.function_name, track_worker_function.start_mode, clock_timestamp())
  on conflict (function_name) do update
    set start_mode = excluded.start_mode,
        updated_at = clock_timestamp();
$function$;

comment on function pgflow.track_worker_function(text, text) is
  'Registers a worker function; a known one gets the given start mode (else http) and keeps the rest.';
