-- ensure_workers(): ping every HTTP worker function that has no live worker.
-- Why now() and the clock both: what is due is judged at one instant, last_invoked_at is when it happened.
-- New: a pinned search_path, and paused functions are left alone.

create or replace function pgflow.ensure_workers()
returns table (function_name text, invoked boolean, request_id bigint)
language sql
set search_path = pg_catalog, pg_temp
as $function$
  with environment as (
    select pgflow.is_local() as is_local
  ),
  secrets as (
    select
      coalesce(
        nullif(max(secret.decrypted_secret) filter (where secret.name = 'pgflow_auth_secret'), ''),
        nullif(max(secret.decrypted_secret) filter (where secret.name = 'supabase_service_role_key'), '')
      ) as auth_key,
      nullif(max(secret.decrypted_secret) filter (where secret.name = 'supabase_project_id'), '') as project
    from vault.decrypted_secrets as secret
    where secret.name in ('pgflow_auth_secret', 'supabase_service_role_key', 'supabase_project_id')
  ),
  -- No row when a hosted project lacks a secret: then nobody is pinged.
  endpoint as (
    select
      case
        when environment.is_local then 'http://kong:8000/functions/v1'
        else 'https://' || secrets.project || '.supabase.co/functions/v1'
      end as base_url,
      case
        when environment.is_local then '{}'::jsonb
        else jsonb_build_object(
          'Content-Type', 'application/json',
          'Authorization', 'Bearer ' || secrets.auth_key
        )
      end as headers
    from environment
    cross join secrets
    where environment.is_local
      or (secrets.auth_key is not null and secrets.project is not null)
  ),
  due as (
    select candidate.function_name
    from pgflow.worker_functions as candidate
    cross join environment
    where candidate.enabled
      and candidate.paused_at is null
      and candidate.start_mode = 'http'
      and (
        environment.is_local
        or (
          (candidate.last_invoked_at is null or candidate.last_invoked_at < now() - candidate.debounce)
          and not exists (
            select
            from pgflow.workers as worker
            where worker.function_name = candidate.function_name
              and worker.stopped_at is null
              and worker.deprecated_at is null
              and worker.last_heartbeat_at > now() - candidate.debounce
          )
        )
      )
    order by candidate.function_name
    -- Looks at the row again after a wait: it may have been paused, or pinged, meanwhile.
    for no key update of candidate
  ),
  pinged as (
    select
      due.function_name,
      net.http_post(
        url => endpoint.base_url || '/' || due.function_name,
        headers => endpoint.headers,
        body => '{}'::jsonb
      ) as request_id
    from due
    cross join endpoint
  ),
  stamped as (
    update pgflow.worker_functions as target
    set last_invoked_at = clock_timestamp()
    from pinged
    where target.function_name = pinged.function_name
  )
  select pinged.function_name, true, pinged.request_id
  from pinged
$function$;

comment on function pgflow.ensure_workers() is
  'Pings enabled HTTP worker functions that are not paused, past their debounce and without a live worker '
  '(on the local stack: all that are enabled and not paused); returns a row for each request made.';
