-- is_local(): is this the local development stack?
-- Why the secret: it is the one that every local stack ships with, and no hosted project has it.
-- Core behaviour: utilities, is_local.

create function pgflow.is_local()
returns boolean
language sql
stable
parallel safe
set search_path = ''
as $function$
  select coalesce(
    current_setting('app.settings.jwt_secret', true)
      = 'super-secret-jwt-token-with-at-least-32-characters-long',
    false
  )
$function$;

comment on function pgflow.is_local() is
  'True when app.settings.jwt_secret is the well-known secret of the local stack; never null.';
