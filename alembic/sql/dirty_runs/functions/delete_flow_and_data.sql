-- delete_flow_and_data(p_flow_slug): remove a flow, all that it has ever run, and its own queues.
-- Locks: the flow's identity (kept until last), its runs, their tasks by deletion, then the queues.
create or replace function pgflow.delete_flow_and_data(p_flow_slug text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $function$
declare
  route text[];
  queue text;
  doubtful text;
begin
  if not pgflow._lock_flow_and_runs(p_flow_slug) then
    return;
  end if;

  -- Under the locks, and before any message goes.
  doubtful := case when pgflow._flow_speaks_protocol_2(p_flow_slug) then pgflow._v2_flow_hold(p_flow_slug) end;
  if doubtful is not null then
    raise exception 'flow "%" cannot be deleted: %', p_flow_slug, doubtful
      using errcode = 'object_not_in_prerequisite_state', hint = 'Nothing was deleted.';
  end if;

  -- The complete private route: of a flow with steps theirs; of one without, the default queue if it has come to be.
  route := array(
    select step.queue_name from pgflow.steps step where step.flow_slug = p_flow_slug
    union
    select lower(flow.flow_slug)
    from pgflow.flows flow
    where flow.flow_slug = p_flow_slug
      and not exists (select from pgflow.steps step where step.flow_slug = p_flow_slug)
      and cardinality(pgflow._queue_traces(lower(flow.flow_slug), false)) > 0
    order by 1
  );

  select string_agg(distinct format('queue "%s" is used by flow "%s", too', used.queue_name, used.flow_slug), '; ')
  into doubtful
  from (
    select lower(flow.flow_slug), flow.flow_slug from pgflow.flows flow
    union all
    select step.queue_name, step.flow_slug from pgflow.steps step
    union all
    select task.queue_name, task.flow_slug
    from pgflow.step_tasks task
    where task.queue_name = any (route) and task.message_id is not null
  ) as used (queue_name, flow_slug)
  where used.queue_name = any (route) and used.flow_slug <> p_flow_slug;

  if doubtful is null then
    select string_agg(distinct format('its tasks are in queue "%s", its steps are not', task.queue_name), '; ')
    into doubtful
    from pgflow.step_tasks task
    where task.flow_slug = p_flow_slug and task.queue_name <> all (route);
  end if;

  if doubtful is null then
    select string_agg(
      format('queue "%s": %s', known.name, array_to_string(known.faults, ', ')), '; ' order by known.name
    )
    into doubtful
    from (
      select private.name, pgflow._queue_faults(private.name) as faults
      from unnest(route) as private (name)
    ) as known
    where cardinality(known.faults) > 0;
  end if;

  -- Without steps there is no route on record: the queue must have been made together with the flow.
  if doubtful is null and not exists (select from pgflow.steps step where step.flow_slug = p_flow_slug) then
    select string_agg(format('queue "%s" is not known to be its own', private.name), '; ')
    into doubtful
    from unnest(route) as private (name)
    where not exists (
      select
      from pgflow.flows flow
      join pgmq.meta meta on lower(meta.queue_name) = private.name and meta.created_at = flow.created_at
      where flow.flow_slug = p_flow_slug
    );
  end if;

  if doubtful is not null then
    raise exception 'flow "%" cannot be deleted: %', p_flow_slug, doubtful
      using errcode = 'object_not_in_prerequisite_state',
            hint = 'Nothing was deleted. See to that first: what a queue lacks pgmq.create() makes, of several rows in '
              'pgmq.meta delete all but one. Then repeat.';
  end if;

  -- Children first: no foreign key cascades. Their messages go with the queues.
  -- Asked first, so that who deletes flows of protocol 1 alone needs no right to update tasks.
  if pgflow._flow_speaks_protocol_2(p_flow_slug) then
    update pgflow.step_tasks task
    set current_claim_id = null
    from pgflow.task_claims claim
    where (claim.run_id, claim.step_slug, claim.task_index) = (task.run_id, task.step_slug, task.task_index)
      and task.current_claim_id = claim.claim_id
      and task.flow_slug = p_flow_slug;
    delete from pgflow.task_claims claim
    using pgflow.run_work work
    where work.run_id = claim.run_id and work.flow_slug = p_flow_slug;
    delete from pgflow.run_work work where work.flow_slug = p_flow_slug;
  end if;
  delete from pgflow.step_tasks task where task.flow_slug = p_flow_slug;
  delete from pgflow.step_states state where state.flow_slug = p_flow_slug;
  delete from pgflow.runs run where run.flow_slug = p_flow_slug;
  delete from pgflow.deps dep where dep.flow_slug = p_flow_slug;
  delete from pgflow.steps step where step.flow_slug = p_flow_slug;

  -- PGMQ drops the tables of any spelling, but the metadata row only of the exact one.
  foreach queue in array route loop
    perform pgmq.drop_queue(meta.queue_name::text) from pgmq.meta meta where lower(meta.queue_name) = queue;
    if cardinality(pgflow._queue_traces(queue, false)) > 0 then
      raise exception 'flow "%" cannot be deleted: PGMQ did not drop queue "%": %', p_flow_slug, queue,
        array_to_string(pgflow._queue_traces(queue, false), '; ')
        using errcode = 'object_not_in_prerequisite_state',
              hint = 'Nothing was deleted. See to that queue, then repeat.';
    end if;
  end loop;

  delete from pgflow.flows flow where flow.flow_slug = p_flow_slug;
end;
$function$;

comment on function pgflow.delete_flow_and_data(text) is
  'Delete a flow''s definition and every run, also active ones, and drop its queues with their archives. An '
  'unknown flow is ignored. 55000, and nothing is deleted, when a run of protocol 2 is still needed, when a queue '
  'of its route is missing, damaged, ambiguous, or used by another flow, or when its tasks are elsewhere than its '
  'steps say.';
