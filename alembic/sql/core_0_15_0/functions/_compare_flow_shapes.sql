-- _compare_flow_shapes(p_local, p_db): what differs, in sentences for the worker's log.
-- Why "<>" for four keys: a key missing on either side says nothing about it. The two patterns are
--   compared strictly, because "no pattern" has a value of its own.
-- Core behaviour: flow shape JSON, _compare_flow_shapes.

create function pgflow._compare_flow_shapes(p_local jsonb, p_db jsonb)
returns text[]
language plpgsql
stable
set search_path = ''
as $function$
declare
  v_local_steps jsonb := coalesce(p_local -> 'steps', '[]');
  v_db_steps jsonb := coalesce(p_db -> 'steps', '[]');
  v_local_count integer := jsonb_array_length(v_local_steps);
  v_db_count integer := jsonb_array_length(v_db_steps);
  v_differences text[] := '{}'::text[];
  v_local jsonb;
  v_db jsonb;
  v_local_deps text[];
  v_db_deps text[];
  v_at text;
begin
  if v_local_count <> v_db_count then
    v_differences := v_differences || format('Step count differs: %s vs %s', v_local_count, v_db_count);
  end if;

  for v_index in 0 .. greatest(v_local_count, v_db_count) - 1 loop
    v_local := v_local_steps -> v_index;
    v_db := v_db_steps -> v_index;
    v_at := format('Step at index %s: ', v_index);

    if v_index >= v_local_count then
      v_differences := v_differences
        || (v_at || format('missing in first shape (second has ''%s'')', v_db ->> 'slug'));
      continue;
    end if;
    if v_index >= v_db_count then
      v_differences := v_differences
        || (v_at || format('missing in second shape (first has ''%s'')', v_local ->> 'slug'));
      continue;
    end if;

    if v_local ->> 'slug' <> v_db ->> 'slug' then
      v_differences := v_differences
        || (v_at || format('slug differs ''%s'' vs ''%s''', v_local ->> 'slug', v_db ->> 'slug'));
    end if;

    if v_local ->> 'stepType' <> v_db ->> 'stepType' then
      v_differences := v_differences
        || (v_at || format('type differs ''%s'' vs ''%s''', v_local ->> 'stepType', v_db ->> 'stepType'));
    end if;

    v_local_deps := array(
      select dep.slug
      from jsonb_array_elements_text(coalesce(v_local -> 'dependencies', '[]')) as dep (slug)
      order by dep.slug
    );
    v_db_deps := array(
      select dep.slug
      from jsonb_array_elements_text(coalesce(v_db -> 'dependencies', '[]')) as dep (slug)
      order by dep.slug
    );
    if v_local_deps <> v_db_deps then
      v_differences := v_differences || (
        v_at || format(
          'dependencies differ [%s] vs [%s]',
          array_to_string(v_local_deps, ', '), array_to_string(v_db_deps, ', ')
        )
      );
    end if;

    if v_local ->> 'whenUnmet' <> v_db ->> 'whenUnmet' then
      v_differences := v_differences || (
        v_at || format(
          'whenUnmet differs ''%s'' vs ''%s''', v_local ->> 'whenUnmet', v_db ->> 'whenUnmet'
        )
      );
    end if;

    if v_local ->> 'whenExhausted' <> v_db ->> 'whenExhausted' then
      v_differences := v_differences || (
        v_at || format(
          'whenExhausted differs ''%s'' vs ''%s''', v_local ->> 'whenExhausted', v_db ->> 'whenExhausted'
        )
      );
    end if;

    if v_local -> 'requiredInputPattern' is distinct from v_db -> 'requiredInputPattern' then
      v_differences := v_differences || (
        v_at || format(
          'requiredInputPattern differs ''%s'' vs ''%s''',
          v_local -> 'requiredInputPattern', v_db -> 'requiredInputPattern'
        )
      );
    end if;

    if v_local -> 'forbiddenInputPattern' is distinct from v_db -> 'forbiddenInputPattern' then
      v_differences := v_differences || (
        v_at || format(
          'forbiddenInputPattern differs ''%s'' vs ''%s''',
          v_local -> 'forbiddenInputPattern', v_db -> 'forbiddenInputPattern'
        )
      );
    end if;
  end loop;

  return v_differences;
end
$function$;

comment on function pgflow._compare_flow_shapes(jsonb, jsonb) is
  'One text for each difference between a worker''s shape and the database''s; empty when they match. '
  'Options are not compared.';
