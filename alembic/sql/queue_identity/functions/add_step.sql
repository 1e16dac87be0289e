-- add_step(flow_slug, step_slug, ...): append a step to a flow, with its dependencies.
-- Why constraints are named in the conflict clauses: a column list would clash with the arguments' names.
-- The step is routed to the default queue of its flow, which is created when it is the first step.

create or replace function pgflow.add_step(
  flow_slug text,
  step_slug text,
  deps_slugs text[] default '{}',
  max_attempts integer default null,
  base_delay integer default null,
  timeout integer default null,
  start_delay integer default null,
  step_type text default 'single',
  required_input_pattern jsonb default null,
  forbidden_input_pattern jsonb default null,
  when_unmet text default 'skip',
  when_exhausted text default 'fail'
)
returns pgflow.steps
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
declare
  v_deps text[] := coalesce(add_step.deps_slugs, '{}');
  v_type text := coalesce(add_step.step_type, 'single');
  v_queue constant text := lower(add_step.flow_slug);
  v_step pgflow.steps;
begin
  perform pgflow._lock_flow(add_step.flow_slug);
  if v_type = 'map' and cardinality(v_deps) > 1 then
    raise exception 'Map step "%" can have at most one dependency, but % were provided: %',
      add_step.step_slug, cardinality(v_deps), array_to_string(v_deps, ', ');
  end if;

  -- An unknown flow is refused by the foreign key below.
  perform from pgflow.flows as flow where flow.flow_slug = add_step.flow_slug for no key update;
  if found then
    perform pgflow._provision_queue(add_step.flow_slug, v_queue);
  end if;

  -- An existing step keeps its row; the update only locks and returns it.
  insert into pgflow.steps as step (
    flow_slug, step_slug, step_type,
    step_index, deps_count,
    opt_max_attempts, opt_base_delay, opt_timeout, opt_start_delay,
    required_input_pattern, forbidden_input_pattern,
    when_unmet, when_exhausted,
    queue_name
  )
  select
    add_step.flow_slug, add_step.step_slug, v_type,
    coalesce(max(other.step_index) + 1, 0), cardinality(v_deps),
    add_step.max_attempts, add_step.base_delay, add_step.timeout, add_step.start_delay,
    add_step.required_input_pattern, add_step.forbidden_input_pattern,
    add_step.when_unmet, add_step.when_exhausted,
    v_queue
  from pgflow.steps as other
  where other.flow_slug = add_step.flow_slug
  on conflict on constraint steps_pkey do update set step_slug = step.step_slug
  returning step.* into v_step;

  insert into pgflow.deps (flow_slug, dep_slug, step_slug)
  select add_step.flow_slug, dep.slug, add_step.step_slug
  from unnest(v_deps) as dep (slug)
  on conflict on constraint deps_pkey do nothing;

  return v_step;
end
$function$;

comment on function pgflow.add_step(
  text, text, text[], integer, integer, integer, integer, text, jsonb, jsonb, text, text
) is
  'Appends a step and its dependencies, which must exist already; an existing step is returned as it is. The '
  'flow''s default queue is created with its first step, and verified later. 55000 when that queue is '
  'damaged, another flow''s, or not known to be this flow''s; 23505 for a case variant of an existing step.';
