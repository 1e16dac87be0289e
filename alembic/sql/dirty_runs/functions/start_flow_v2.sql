-- A new run of protocol 2: all its rows, and the root step's message.
-- Locks: the flow (advisory), the rows of its definition, then new rows only.
create or replace function pgflow.start_flow_v2(flow_slug text, input jsonb, run_id uuid default null)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  limits constant jsonb := pgflow._v2_limits();
  wanted_id constant uuid := coalesce(start_flow_v2.run_id, gen_random_uuid());
  canonical constant text := pgflow._canonical_json(start_flow_v2.input);
  known pgflow.runs;
  shape record;
  faults text[];
begin
  faults := array(
    select fault.name
    from (
      values
        ('flow_slug_is_null', start_flow_v2.flow_slug is null),
        ('input_is_null', start_flow_v2.input is null),
        ('input_bytes', pgflow._v2_bytes(canonical) > (limits ->> 'input_bytes')::integer),
        -- What is read after a lock has to be what was committed before it.
        ('transaction_isolation', current_setting('transaction_isolation') <> 'read committed')
    ) as fault (name, is_there)
    where fault.is_there
  );
  if cardinality(faults) > 0 then
    return jsonb_build_object('outcome', 'rejected', 'reasons', to_jsonb(faults));
  end if;

  perform pgflow._lock_flow(start_flow_v2.flow_slug);

  select run.* into known from pgflow.runs run where run.run_id = wanted_id;
  if found then
    if exists (select from pgflow.run_work work where work.run_id = wanted_id)
      and known.flow_slug = start_flow_v2.flow_slug
      and pgflow._canonical_json(known.input) = canonical
    then
      return jsonb_build_object('outcome', 'started', 'run_id', wanted_id, 'replayed', true);
    end if;
    return jsonb_build_object('outcome', 'conflict', 'run_id', wanted_id, 'reasons', jsonb '["run_id"]');
  end if;

  -- Twice: what is outside the envelope is not locked, and what was waited for may have changed.
  shape := pgflow._v2_definition(start_flow_v2.flow_slug);
  if cardinality(shape.faults) = 0 then
    perform pgflow._v2_hold_definition(start_flow_v2.flow_slug);
    shape := pgflow._v2_definition(start_flow_v2.flow_slug);
  end if;
  faults := shape.faults;
  if cardinality(faults) = 0 then
    faults := pgflow._v2_route_faults(start_flow_v2.flow_slug);
  end if;
  if cardinality(faults) > 0 then
    return jsonb_build_object('outcome', 'rejected', 'reasons', to_jsonb(faults));
  end if;

  insert into pgflow.runs (run_id, flow_slug, input, remaining_steps)
  values (wanted_id, start_flow_v2.flow_slug, canonical::jsonb, (limits ->> 'steps')::integer)
  on conflict on constraint runs_pkey do nothing;
  if not found then
    -- Another flow's start has taken the id meanwhile.
    return jsonb_build_object('outcome', 'conflict', 'run_id', wanted_id, 'reasons', jsonb '["run_id"]');
  end if;
  insert into pgflow.run_work (run_id, flow_slug, definition_sha256)
  values (
    wanted_id, start_flow_v2.flow_slug, pgflow._v2_sha256(pgflow._canonical_json(shape.definition))
  );

  insert into pgflow.step_states (flow_slug, run_id, step_slug, remaining_deps, initial_tasks)
  select
    step.flow_slug, wanted_id, step.step_slug,
    (select count(*) from pgflow.deps dep where (dep.flow_slug, dep.step_slug) = (step.flow_slug, step.step_slug)),
    1
  from pgflow.steps step
  where step.flow_slug = start_flow_v2.flow_slug;

  perform pgflow._v2_send_hint(wanted_id, 'run:started', jsonb_build_object(
    'flow_slug', start_flow_v2.flow_slug, 'input', canonical::jsonb, 'status', 'started',
    'remaining_steps', (limits ->> 'steps')::integer
  ));
  perform pgflow._v2_dispatch_step(wanted_id, state.step_slug)
  from pgflow.step_states state
  where state.run_id = wanted_id and state.remaining_deps = 0;

  return jsonb_build_object('outcome', 'started', 'run_id', wanted_id, 'replayed', false);
end;
$$;

comment on function pgflow.start_flow_v2(text, jsonb, uuid) is
  'Internal protocol, opt-in. Start a run of the bounded A -> B protocol. Outcome "started" (run_id; replayed when '
  'the same run_id, flow and input were started before), "conflict" (run_id is taken), "rejected" (reasons: what is '
  'outside the envelope; nothing was written). When it returns, the root step''s message is in its queue.';
