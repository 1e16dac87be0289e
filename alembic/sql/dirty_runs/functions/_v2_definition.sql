-- The structural definition of a flow, and what keeps it outside the envelope. Reads one row more than the envelope
-- allows, and no further, however large the flow is.
create or replace function pgflow._v2_definition(
  p_flow_slug text, out definition jsonb, out faults text[], out examined integer
)
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  limits constant jsonb := pgflow._v2_limits();
  flow pgflow.flows;
  step_count integer;
  edge_count integer;
  steps jsonb;
  edges jsonb;
begin
  faults := '{}';
  examined := 0;
  select f.* into flow from pgflow.flows f where f.flow_slug = p_flow_slug;
  if not found then
    faults := '{no_such_flow}';
    return;
  end if;

  select count(*), jsonb_agg(
    jsonb_build_object(
      'slug', step.step_slug,
      'index', step.step_index,
      'type', step.step_type,
      'queue', step.queue_name,
      'maxAttempts', coalesce(step.opt_max_attempts, flow.opt_max_attempts),
      'timeout', coalesce(step.opt_timeout, flow.opt_timeout),
      'startDelay', coalesce(step.opt_start_delay, 0),
      'whenExhausted', step.when_exhausted,
      'condition', step.required_input_pattern is not null or step.forbidden_input_pattern is not null
    )
    order by step.step_slug collate "C"
  )
  into step_count, steps
  from (
    select s.*
    from pgflow.steps s
    where s.flow_slug = p_flow_slug
    -- Not by the slug, whose order is the database's.
    order by s.step_index
    limit (limits ->> 'steps')::integer + 1
  ) step;

  select count(*), jsonb_agg(jsonb_build_array(edge.dep_slug, edge.step_slug))
  into edge_count, edges
  from (
    select d.dep_slug, d.step_slug
    from pgflow.deps d
    where d.flow_slug = p_flow_slug
    order by d.dep_slug, d.step_slug
    limit (limits ->> 'edges')::integer + 1
  ) edge;

  examined := 1 + step_count + edge_count;
  definition := jsonb_build_object('flow', flow.flow_slug, 'steps', steps, 'edges', edges);

  faults := array(
    select fault.name
    from (
      values
        ('step_count', step_count <> (limits ->> 'steps')::integer),
        ('edge_count', edge_count <> (limits ->> 'edges')::integer),
        ('map_step', definition @@ '$.steps[*].type != "single"'),
        ('condition', definition @@ '$.steps[*].condition == true'),
        ('when_exhausted', definition @@ '$.steps[*].whenExhausted != "fail"'),
        ('max_attempts', jsonb_path_exists(definition, '$.steps[*] ? (@.maxAttempts != $max_attempts)', limits)),
        ('timeout', jsonb_path_exists(
          definition, '$.steps[*] ? (@.timeout < $timeout_seconds_min || @.timeout > $timeout_seconds_max)', limits
        )),
        ('start_delay', jsonb_path_exists(
          definition, '$.steps[*] ? (@.startDelay < 0 || @.startDelay > $start_delay_seconds_max)', limits
        )),
        -- Of a larger flow only a part was read, and no size can be told.
        ('definition_bytes',
          step_count = (limits ->> 'steps')::integer
            and edge_count = (limits ->> 'edges')::integer
            and pgflow._v2_bytes(pgflow._canonical_json(definition)) > (limits ->> 'definition_bytes')::integer)
    ) as fault (name, is_there)
    where fault.is_there
  );
end;
$$;

comment on function pgflow._v2_definition(text) is
  'Internal. A flow''s definition as protocol 2 identifies it (steps, edges, routes, effective options; at most one '
  'step and one edge beyond the envelope), why it is outside the envelope (empty when it is inside), and how many '
  'rows were read.';
