-- delete_flow_and_data(p_flow_slug): remove a flow, all that it has ever run, and its own queues.
-- Locks: the flow (kept until last), its runs, step states and tasks by their deletion, then the queues.
create or replace function pgflow.delete_flow_and_data(p_flow_slug text)
returns void
language plpgsql
volatile
set search_path = ''
as $function$
declare
  route text[];
  queue text;
  spellings text[];
  doubtful text;
begin
  perform from pgflow.flows flow where flow.flow_slug = p_flow_slug for update;
  if not found then
    return;
  end if;
  perform from pgflow.runs run where run.flow_slug = p_flow_slug order by run.run_id for update;

  select array_agg(distinct known.queue_name order by known.queue_name) into route
  from (
    select lower(p_flow_slug)
    union all
    select step.queue_name from pgflow.steps step where step.flow_slug = p_flow_slug
    union all
    select task.queue_name from pgflow.step_tasks task where task.flow_slug = p_flow_slug
  ) as known (queue_name);

  -- Only queues that are this flow's alone, and whole, may be dropped.
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
    select string_agg(format('pgmq.%s is missing', part.name), '; ' order by part.name) into doubtful
    from unnest(route) as known (name)
    cross join lateral (values ('q_' || known.name), ('a_' || known.name)) as part (name)
    where not exists (
      select
      from pg_catalog.pg_class c
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace
      where n.nspname = 'pgmq' and c.relname = part.name and c.relkind in ('r', 'p')
    );
  end if;

  if doubtful is not null then
    raise exception 'flow "%" cannot be deleted: %', p_flow_slug, doubtful
      using errcode = 'object_not_in_prerequisite_state',
            hint = 'Nothing was deleted. See to those queues, then repeat.';
  end if;

  -- Children first: no foreign key cascades.
  delete from pgflow.step_tasks task where task.flow_slug = p_flow_slug;
  delete from pgflow.step_states state where state.flow_slug = p_flow_slug;
  delete from pgflow.runs run where run.flow_slug = p_flow_slug;
  delete from pgflow.deps dep where dep.flow_slug = p_flow_slug;
  delete from pgflow.steps step where step.flow_slug = p_flow_slug;

  -- PGMQ drops the tables of any spelling, but the metadata row only of the exact one.
  foreach queue in array route loop
    select array_agg(meta.queue_name::text) into spellings
    from pgmq.meta meta
    where lower(meta.queue_name) = queue;
    if cardinality(spellings) is distinct from 1 then
      raise exception 'queue "%" of flow "%" has % rows in pgmq.meta, not one', queue, p_flow_slug,
        coalesce(cardinality(spellings), 0)
        using errcode = 'object_not_in_prerequisite_state',
              hint = 'Nothing was deleted. See to pgmq.meta and the tables of that queue, then repeat.';
    end if;
    perform pgmq.drop_queue(spellings[1]);
  end loop;

  delete from pgflow.flows flow where flow.flow_slug = p_flow_slug;
end;
$function$;

comment on function pgflow.delete_flow_and_data(text) is
  'Delete a flow''s definition and every run, also active ones, and drop its queues with their archives. An '
  'unknown flow is ignored; a queue that another flow uses, that lacks a table, or that has not exactly one '
  'row in pgmq.meta raises 55000, and nothing is deleted.';
