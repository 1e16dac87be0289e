-- Whether the queues of a flow may carry protocol 2. Without sequential scans, because definitions may be many and
-- statistics old: what is read is bounded by the flow's own steps, found by index.
create or replace function pgflow._v2_route_faults(p_flow_slug text)
returns text[]
language sql
stable
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
as $$
  select coalesce(array_agg(distinct fault.name order by fault.name), array[]::text[])
  from pgflow.steps step
  cross join lateral (
    select 'queue' where cardinality(pgflow._queue_faults(step.queue_name)) > 0
    union all
    -- A message is of one flow alone, or a stranger's poller would hide it.
    select 'queue_of_another_flow' where exists (
      select from pgflow.steps other where other.queue_name = step.queue_name and other.flow_slug <> step.flow_slug
      union all
      select from pgflow.flows other
      where lower(other.flow_slug) = step.queue_name and other.flow_slug <> step.flow_slug
    )
  ) as fault (name)
  where step.flow_slug = p_flow_slug;
$$;

comment on function pgflow._v2_route_faults(text) is
  'Internal, of a flow inside the envelope. "queue": a queue of its route is not whole (_queue_faults); '
  '"queue_of_another_flow": one is another flow''s, too. Empty when neither is so.';
