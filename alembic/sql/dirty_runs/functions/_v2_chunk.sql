-- The rules, applied once to the rows as they are: start what is ready; else finish what is over; else nothing is left.
create or replace function pgflow._v2_chunk(p_run pgflow.runs)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  limits constant jsonb := pgflow._v2_limits();
  shape record;
  examined integer := 2;  -- run and work
  state_count integer;
  task_count integer;
  open_steps integer;
  completed_steps integer;
  ready_step text;
  leaves jsonb;
  ended_at timestamptz;
begin
  if p_run.status <> 'started' then
    return jsonb_build_object('outcome', 'clean', 'examined', examined);
  end if;

  shape := pgflow._v2_definition(p_run.flow_slug);
  if pgflow._v2_sha256(pgflow._canonical_json(shape.definition)) is distinct from (
    select work.definition_sha256 from pgflow.run_work work where work.run_id = p_run.run_id
  ) then
    raise exception 'flow "%" is no longer what run % began with', p_run.flow_slug, p_run.run_id
      using errcode = 'PF007';
  end if;
  examined := examined + shape.examined;

  perform from (
    select s.ctid
    from pgflow.step_states s
    where s.run_id = p_run.run_id
    order by s.step_slug
    limit (limits ->> 'steps')::integer + 1
    for update
  ) locked;
  get diagnostics state_count = row_count;
  perform from (
    select t.ctid
    from pgflow.step_tasks t
    where t.run_id = p_run.run_id
    order by t.step_slug, t.task_index
    limit (limits ->> 'tasks')::integer + 1
    for update
  ) locked;
  get diagnostics task_count = row_count;
  examined := examined + state_count + task_count;
  if state_count > (limits ->> 'steps')::integer
    or task_count > (limits ->> 'tasks')::integer
    or examined > (limits ->> 'examined_rows_per_chunk')::integer
  then
    raise exception 'run % has more rows than the contract allows: %', p_run.run_id, examined using errcode = 'PF007';
  end if;

  -- From the states themselves, not from counters.
  select count(*) filter (where state.status not in ('completed', 'failed', 'skipped')),
    count(*) filter (where state.status = 'completed'),
    min(state.step_slug) filter (
      where state.status = 'created'
        and not exists (
          select
          from pgflow.deps dep
          left join pgflow.step_states parent on parent.run_id = state.run_id and parent.step_slug = dep.dep_slug
          where dep.flow_slug = state.flow_slug
            and dep.step_slug = state.step_slug
            and parent.status is distinct from 'completed'
        )
        and not exists (
          select from pgflow.step_tasks task where task.run_id = state.run_id and task.step_slug = state.step_slug
        )
    )
  into open_steps, completed_steps, ready_step
  from pgflow.step_states state
  where state.run_id = p_run.run_id;

  if open_steps > 0 and open_steps <> p_run.remaining_steps then
    update pgflow.runs run set remaining_steps = open_steps where run.run_id = p_run.run_id;
  end if;
  if ready_step is not null then
    perform pgflow._v2_dispatch_step(p_run.run_id, ready_step);
    return jsonb_build_object('outcome', 'dispatched', 'step_slug', ready_step, 'examined', examined);
  elsif open_steps > 0 then
    return jsonb_build_object('outcome', 'clean', 'examined', examined);
  elsif completed_steps <> (limits ->> 'steps')::integer then
    -- A failure ends its run by itself, and nothing is skipped: somebody else has written here.
    raise exception 'run % has % completed steps and no other to wait for: not %',
      p_run.run_id, completed_steps, limits ->> 'steps'
      using errcode = 'PF007';
  end if;

  select jsonb_object_agg(state.step_slug, state.output) into leaves
  from pgflow.step_states state
  where state.run_id = p_run.run_id
    and state.status = 'completed'
    and not exists (
      select from pgflow.deps dep where dep.flow_slug = p_run.flow_slug and dep.dep_slug = state.step_slug
    );
  if pgflow._v2_bytes(leaves::text) > (limits ->> 'run_output_bytes')::integer then
    raise exception 'the output of run % has % bytes, at most % are kept',
      p_run.run_id, pgflow._v2_bytes(leaves::text), limits ->> 'run_output_bytes'
      using errcode = 'PF007';
  end if;
  update pgflow.runs run
  set status = 'completed', completed_at = greatest(clock_timestamp(), run.started_at), output = leaves,
      remaining_steps = 0
  where run.run_id = p_run.run_id
  returning run.completed_at into ended_at;
  perform pgflow._v2_send_hint(p_run.run_id, 'run:completed', jsonb_build_object(
    'flow_slug', p_run.flow_slug, 'status', 'completed', 'output', leaves, 'completed_at', ended_at
  ));
  return jsonb_build_object('outcome', 'finalized', 'examined', examined);
end;
$$;

comment on function pgflow._v2_chunk(pgflow.runs) is
  'Internal, under the locks of run and work. At most one transition of a run: dispatched (its first ready step), '
  'finalized (every step is over), or clean (nothing to do at once). examined counts the rows read. PF007 when '
  'definition or rows are not what the contract allows.';
