-- create_flow(flow_slug, ...): register a flow and its queue.
-- Why three statements: the second sees what a concurrent creation, that the first waited for, committed.

create or replace function pgflow.create_flow(
  flow_slug text,
  max_attempts integer default null,
  base_delay integer default null,
  timeout integer default null
)
returns pgflow.flows
language sql
set search_path = ''
as $function$
  -- An existing flow keeps its options; the update only locks its row.
  insert into pgflow.flows as flow (flow_slug, opt_max_attempts, opt_base_delay, opt_timeout)
  values (
    create_flow.flow_slug,
    coalesce(create_flow.max_attempts, 3),
    coalesce(create_flow.base_delay, 5),
    coalesce(create_flow.timeout, 60)
  )
  on conflict (flow_slug) do update set flow_slug = flow.flow_slug;

  -- Also mends an existing flow that has lost its queue. Any spelling addresses the same tables.
  select pgmq.create(create_flow.flow_slug)
  where not exists (
    select
    from pgmq.meta as queue
    where lower(queue.queue_name) = lower(create_flow.flow_slug)
  );

  select flow.*
  from pgflow.flows as flow
  where flow.flow_slug = create_flow.flow_slug;
$function$;

comment on function pgflow.create_flow(text, integer, integer, integer) is
  'Registers a flow (3 attempts, 5 s base delay, 60 s timeout unless given) and creates its queue; an '
  'existing flow is returned as it is.';
