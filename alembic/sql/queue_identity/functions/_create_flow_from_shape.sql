-- _create_flow_from_shape(p_flow_slug, p_shape): create a flow, its queue and its steps from a worker's shape.
-- The queue is provisioned before the first step, so that a flow without steps has its queue, too.
create or replace function pgflow._create_flow_from_shape(p_flow_slug text, p_shape jsonb)
returns void
language plpgsql
set search_path = pg_catalog, pg_temp
as $function$
declare
  v_options jsonb := p_shape -> 'options';
  v_step jsonb;
begin
  perform pgflow.create_flow(
    flow_slug => p_flow_slug,
    max_attempts => (v_options ->> 'maxAttempts')::integer,
    base_delay => (v_options ->> 'baseDelay')::integer,
    timeout => (v_options ->> 'timeout')::integer
  );
  perform pgflow._provision_queue(p_flow_slug, lower(p_flow_slug));

  for v_step in
    select element.value
    from jsonb_array_elements(p_shape -> 'steps') with ordinality as element (value, place)
    order by element.place
  loop
    v_options := v_step -> 'options';
    perform pgflow.add_step(
      flow_slug => p_flow_slug,
      step_slug => v_step ->> 'slug',
      deps_slugs => array(
        select dep.slug
        from jsonb_array_elements_text(v_step -> 'dependencies') with ordinality as dep (slug, place)
        order by dep.place
      ),
      max_attempts => (v_options ->> 'maxAttempts')::integer,
      base_delay => (v_options ->> 'baseDelay')::integer,
      timeout => (v_options ->> 'timeout')::integer,
      start_delay => (v_options ->> 'startDelay')::integer,
      step_type => coalesce(v_step ->> 'stepType', 'single'),
      required_input_pattern => case
        when (v_step -> 'requiredInputPattern' ->> 'defined')::boolean
          then v_step -> 'requiredInputPattern' -> 'value'
      end,
      forbidden_input_pattern => case
        when (v_step -> 'forbiddenInputPattern' ->> 'defined')::boolean
          then v_step -> 'forbiddenInputPattern' -> 'value'
      end,
      when_unmet => coalesce(v_step ->> 'whenUnmet', 'skip'),
      when_exhausted => coalesce(v_step ->> 'whenExhausted', 'fail')
    );
  end loop;
end
$function$;

comment on function pgflow._create_flow_from_shape(text, jsonb) is
  'Internal. Creates the flow, its default queue and its steps in the order of the shape; what exists is '
  'verified and left as it is. Errors as create_flow and add_step.';
