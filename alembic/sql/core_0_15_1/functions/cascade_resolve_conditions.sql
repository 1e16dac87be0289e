-- cascade_resolve_conditions(run_id): apply the conditions of ready steps, again while plain
-- skips make more steps ready.
-- Returns false exactly when the run is failed. Does not start or complete anything: callers do.
-- 0.15.1: a failing condition fails the run only if it is still started; unfinished tasks become cancelled
-- before their messages are archived.
-- Core behaviour: cascade_resolve_conditions.

create or replace function pgflow.cascade_resolve_conditions(run_id uuid)
returns boolean
language plpgsql
set search_path = ''
as $function$
declare
  v_run pgflow.runs%rowtype;
  v_state pgflow.step_states%rowtype;
  v_rounds integer := 0;
  v_plain_skips boolean := true;
  v_mode text;
  v_unmet text[];
  v_step_slug text;
  v_message_ids bigint[];
begin
  loop
    select run.*
    into v_run
    from pgflow.runs as run
    where run.run_id = cascade_resolve_conditions.run_id;

    if v_run.status = 'failed' then
      return false;
    end if;

    -- Cascades make nothing ready, so only a round with plain skips needs another.
    if v_run.status is distinct from 'started' or not v_plain_skips then
      return true;
    end if;

    v_rounds := v_rounds + 1;
    if v_rounds > 50 then
      raise exception 'cascade_resolve_conditions exceeded safety limit of 50 iterations';
    end if;

    v_plain_skips := false;

    -- Each mode looks again: skip-cascade sees what the plain skips of this round made ready.
    foreach v_mode in array array['fail', 'skip', 'skip-cascade'] loop
      select array_agg(step.step_slug order by step.step_index)
      into v_unmet
      from pgflow.step_states as state
      join pgflow.steps as step
        on step.flow_slug = state.flow_slug
        and step.step_slug = state.step_slug
      cross join lateral (
        select case
          when step.deps_count = 0 then v_run.input
          else (
            select coalesce(jsonb_object_agg(parent.step_slug, parent.output), '{}'::jsonb)
            from pgflow.deps as dep
            join pgflow.step_states as parent
              on parent.run_id = state.run_id
              and parent.step_slug = dep.dep_slug
              and parent.status = 'completed'
            where dep.flow_slug = step.flow_slug
              and dep.step_slug = step.step_slug
          )
        end as input
      ) as tested
      where state.run_id = cascade_resolve_conditions.run_id
        and state.status = 'created'
        and state.remaining_deps = 0
        and step.when_unmet = v_mode
        and (
          (step.required_input_pattern is not null and not tested.input @> step.required_input_pattern)
          or (step.forbidden_input_pattern is not null and tested.input @> step.forbidden_input_pattern)
        );

      continue when v_unmet is null;

      if v_mode = 'fail' then
        update pgflow.runs as run
        set status = 'failed',
            failed_at = now()
        where run.run_id = cascade_resolve_conditions.run_id
          and run.status = 'started'
        returning run.* into v_run;

        if not found then
          return false;
        end if;

        update pgflow.step_states as state
        set status = 'failed',
            failed_at = now(),
            error_message = 'Condition not met'
        where state.run_id = v_run.run_id
          and state.step_slug = v_unmet[1]
        returning state.* into v_state;

        perform realtime.send(
          jsonb_build_object(
            'event_type', 'step:failed',
            'run_id', v_state.run_id,
            'step_slug', v_state.step_slug,
            'status', v_state.status,
            'error_message', v_state.error_message,
            'failed_at', v_state.failed_at
          ),
          'step:' || v_state.step_slug || ':failed',
          'pgflow:run:' || v_run.run_id,
          false
        );

        perform realtime.send(
          jsonb_build_object(
            'event_type', 'run:failed',
            'run_id', v_run.run_id,
            'flow_slug', v_run.flow_slug,
            'status', v_run.status,
            'error_message', v_state.error_message,
            'failed_at', v_run.failed_at
          ),
          'run:failed',
          'pgflow:run:' || v_run.run_id,
          false
        );

        with ended as (
          update pgflow.step_tasks as task
          set status = 'cancelled'
          where task.run_id = v_run.run_id
            and task.status in ('queued', 'started')
          returning task.message_id
        )
        select array_agg(ended.message_id)
        into v_message_ids
        from ended
        where ended.message_id is not null;

        if v_message_ids is not null then
          perform pgmq.archive(v_run.flow_slug, v_message_ids);
        end if;

        return false;
      end if;

      if v_mode = 'skip' then
        v_plain_skips := true;

        update pgflow.step_states as state
        set status = 'skipped',
            skip_reason = 'condition_unmet',
            skipped_at = now()
        where state.run_id = cascade_resolve_conditions.run_id
          and state.step_slug = any (v_unmet);

        perform realtime.send(
          jsonb_build_object(
            'event_type', 'step:skipped',
            'run_id', state.run_id,
            'flow_slug', state.flow_slug,
            'step_slug', state.step_slug,
            'status', state.status,
            'skip_reason', state.skip_reason,
            'skipped_at', state.skipped_at
          ),
          'step:' || state.step_slug || ':skipped',
          'pgflow:run:' || state.run_id,
          false
        )
        from pgflow.step_states as state
        where state.run_id = cascade_resolve_conditions.run_id
          and state.step_slug = any (v_unmet);

        -- A map over a skipped step is empty.
        update pgflow.step_states as dependent
        set remaining_deps = dependent.remaining_deps - parents.skipped,
            initial_tasks = case
              when step.step_type = 'map' and step.deps_count = 1 then 0
              else dependent.initial_tasks
            end
        from (
          select dep.step_slug, count(*) as skipped
          from pgflow.deps as dep
          where dep.flow_slug = v_run.flow_slug
            and dep.dep_slug = any (v_unmet)
          group by dep.step_slug
        ) as parents
        join pgflow.steps as step
          on step.flow_slug = v_run.flow_slug
          and step.step_slug = parents.step_slug
        where dependent.run_id = cascade_resolve_conditions.run_id
          and dependent.step_slug = parents.step_slug;

        update pgflow.runs as run
        set remaining_steps = run.remaining_steps - cardinality(v_unmet)
        where run.run_id = cascade_resolve_conditions.run_id;
      else
        foreach v_step_slug in array v_unmet loop
          perform pgflow._cascade_force_skip_steps(v_run.run_id, v_step_slug, 'condition_unmet');
        end loop;
      end if;
    end loop;
  end loop;
end
$function$;

comment on function pgflow.cascade_resolve_conditions(uuid) is
  'Fails the run or skips steps where conditions of ready steps are unmet; false when the run is failed.';
