-- The preflight of provisioning. It changes nothing, so that all of it can come before the first change.
-- Ownership evidence is the persisted definition: a step with this route; or, of a flow that has no step yet, the flow
-- whose row was made in the same transaction as its default queue (flows.created_at = pgmq.meta.created_at).
create or replace function pgflow._queue_is_provisioned(p_flow_slug text, p_queue_name text)
returns boolean
language plpgsql
stable
set search_path = pg_catalog, pg_temp
as $$
declare
  others text;
  faults text[];
  traces text[];
begin
  if p_queue_name !~ '^[a-z0-9_]{1,47}$' then
    raise exception 'flow "%" cannot have a queue named "%"', p_flow_slug, p_queue_name
      using errcode = 'invalid_parameter_value',
            hint = 'A queue name has 1 to 47 lower-case letters, digits and underscores.';
  end if;

  select string_agg(distinct format('"%s"', used.flow_slug), ', ') into others
  from (
    select flow.flow_slug from pgflow.flows flow where lower(flow.flow_slug) = p_queue_name
    union all
    select step.flow_slug from pgflow.steps step where step.queue_name = p_queue_name
  ) as used
  where used.flow_slug <> p_flow_slug;
  if others is not null then
    raise exception 'queue "%" cannot serve flow "%": it is the queue of flow %', p_queue_name, p_flow_slug, others
      using errcode = 'object_not_in_prerequisite_state',
            hint = 'Nothing was changed. Give the flow another slug.';
  end if;

  if exists (
    select from pgflow.steps step where step.flow_slug = p_flow_slug and step.queue_name = p_queue_name
  ) or exists (
    select
    from pgflow.flows flow
    join pgmq.meta meta on lower(meta.queue_name) = lower(flow.flow_slug) and meta.created_at = flow.created_at
    where flow.flow_slug = p_flow_slug and lower(flow.flow_slug) = p_queue_name
  ) then
    faults := pgflow._queue_faults(p_queue_name);
    if cardinality(faults) > 0 then
      raise exception 'queue "%" of flow "%" cannot be used: %',
        p_queue_name, p_flow_slug, array_to_string(faults, '; ')
        using errcode = 'object_not_in_prerequisite_state',
              hint = format('Nothing was changed. What is missing pgmq.create(%L) makes; if the flow has tasks, then '
                'set the queue''s sequence beyond their highest message_id, so that no id comes twice. Of several rows '
                'in pgmq.meta delete all but one.', p_queue_name);
    end if;
    return true;
  end if;

  traces := coalesce(nullif(pgflow._queue_traces(p_queue_name, false), '{}'), pgflow._queue_traces(p_queue_name, true));
  if cardinality(traces) > 0 then
    raise exception 'queue "%" is not flow "%"''s own: %', p_queue_name, p_flow_slug, array_to_string(traces, '; ')
      using errcode = 'object_not_in_prerequisite_state',
            hint = 'Nothing was changed. Give the flow another slug, or drop the queue if nobody needs it.';
  end if;
  return false;
end;
$$;

comment on function pgflow._queue_is_provisioned(text, text) is
  'Internal. Whether a flow''s generated queue exists and is whole (true), or its name is free (false). '
  '55000 when the queue belongs to another flow, is damaged, or exists without the flow''s definition as '
  'evidence; 22023 for a name that cannot be a queue''s. Changes nothing.';
