-- create_flow(flow_slug, ...): register a flow. Its queue comes with its first step, or from the compiler.
create or replace function pgflow.create_flow(
  flow_slug text,
  max_attempts integer default null,
  base_delay integer default null,
  timeout integer default null
)
returns pgflow.flows
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
declare
  flow pgflow.flows;
begin
  perform pgflow._lock_flow(create_flow.flow_slug);

  -- A new flow whose queue is there already would take it over later. Bad slugs and case variants of an existing flow
  -- are left to the constraints below.
  if pgflow.is_valid_slug(create_flow.flow_slug) and not exists (
    select from pgflow.flows known where lower(known.flow_slug) = lower(create_flow.flow_slug)
  ) then
    perform pgflow._queue_is_provisioned(create_flow.flow_slug, lower(create_flow.flow_slug));
  end if;

  -- An existing flow keeps its options; the update only locks its row.
  insert into pgflow.flows as known (flow_slug, opt_max_attempts, opt_base_delay, opt_timeout)
  values (
    create_flow.flow_slug,
    coalesce(create_flow.max_attempts, 3),
    coalesce(create_flow.base_delay, 5),
    coalesce(create_flow.timeout, 60)
  )
  on conflict on constraint flows_pkey do update set flow_slug = known.flow_slug
  returning known.* into flow;

  return flow;
end
$function$;

comment on function pgflow.create_flow(text, integer, integer, integer) is
  'Registers a flow (3 attempts, 5 s base delay, 60 s timeout unless given), and nothing in PGMQ; an '
  'existing flow is returned as it is. 23514 for a slug that is not allowed, 23505 for a case variant of an '
  'existing flow, 55000 when a new flow''s queue exists already, 22023 when its slug is too long for a queue.';
