-- _get_flow_shape(p_flow_slug): the stored definition in the form that workers send.
-- Core behaviour: flow shape JSON, _get_flow_shape.

create function pgflow._get_flow_shape(p_flow_slug text)
returns jsonb
language sql
stable
set search_path = ''
as $function$
  select jsonb_build_object(
    'steps',
    coalesce(
      jsonb_agg(
        jsonb_build_object(
          'slug', step.step_slug,
          'stepType', step.step_type,
          'dependencies', coalesce(
            (
              select jsonb_agg(dep.dep_slug order by dep.dep_slug)
              from pgflow.deps as dep
              where dep.flow_slug = step.flow_slug
                and dep.step_slug = step.step_slug
            ),
            '[]'
          ),
          'whenUnmet', step.when_unmet,
          'whenExhausted', step.when_exhausted,
          -- "defined" tells no pattern from any JSON value.
          'requiredInputPattern',
          case
            when step.required_input_pattern is null then jsonb_build_object('defined', false)
            else jsonb_build_object('defined', true, 'value', step.required_input_pattern)
          end,
          'forbiddenInputPattern',
          case
            when step.forbidden_input_pattern is null then jsonb_build_object('defined', false)
            else jsonb_build_object('defined', true, 'value', step.forbidden_input_pattern)
          end
        )
        order by step.step_index
      ),
      '[]'
    )
  )
  from pgflow.steps as step
  where step.flow_slug = p_flow_slug
$function$;

comment on function pgflow._get_flow_shape(text) is
  'The stored steps as {"steps": [...]} in definition order, without options; an unknown flow has none.';
