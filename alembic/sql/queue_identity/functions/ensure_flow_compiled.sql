-- What a worker calls when it starts, before it registers or reads a message.
-- The third argument has no default: workers of 0.16.0 and before, which do not know it, fail with 42883.
create or replace function pgflow.ensure_flow_compiled(flow_slug text, shape jsonb, capabilities jsonb)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  default_queue constant text := lower(ensure_flow_compiled.flow_slug);
  outcome text;
  differences text[] := array[]::text[];
  queue text;
begin
  if jsonb_typeof(capabilities) is distinct from 'object'
    or capabilities -> 'queueIdentity' is distinct from 'true'
  then
    raise exception 'the worker does not say that it knows queue identity'
      using errcode = 'PF002',
            hint = 'Upgrade the worker''s package to the one for this database. Its third argument has to be an '
                   'object with "queueIdentity": true.';
  end if;

  perform pgflow._lock_flow(ensure_flow_compiled.flow_slug);
  perform from pgflow.flows flow where flow.flow_slug = ensure_flow_compiled.flow_slug for no key update;
  if not found then
    perform pgflow._create_flow_from_shape(ensure_flow_compiled.flow_slug, shape);
    outcome := 'compiled';
  else
    differences := pgflow._compare_flow_shapes(shape, pgflow._get_flow_shape(ensure_flow_compiled.flow_slug));
    if cardinality(differences) = 0 then
      outcome := 'verified';
      for queue in
        select distinct step.queue_name
        from pgflow.steps step
        where step.flow_slug = ensure_flow_compiled.flow_slug
        order by 1
      loop
        perform pgflow._queue_is_provisioned(ensure_flow_compiled.flow_slug, queue);
      end loop;
      if not found and not pgflow._queue_is_provisioned(ensure_flow_compiled.flow_slug, default_queue) then
        -- Registered by create_flow() alone, and complete only now: without steps it is this time that says later
        -- that the queue is the flow's own.
        perform pgflow._provision_queue(ensure_flow_compiled.flow_slug, default_queue);
        update pgflow.flows flow set created_at = now() where flow.flow_slug = ensure_flow_compiled.flow_slug;
      end if;
    elsif pgflow.is_local() then
      -- Recompiling deletes every run of the flow: only a local stack may.
      perform pgflow.delete_flow_and_data(ensure_flow_compiled.flow_slug);
      perform pgflow._create_flow_from_shape(ensure_flow_compiled.flow_slug, shape);
      outcome := 'recompiled';
    else
      outcome := 'mismatch';
    end if;
  end if;

  return jsonb_build_object(
    'status', outcome, 'differences', to_jsonb(differences), 'queueName', default_queue
  );
end;
$$;

comment on function pgflow.ensure_flow_compiled(text, jsonb, jsonb) is
  'Create the flow and its queue from a worker''s shape, or compare it with the stored one and verify its '
  'queues. capabilities is an object that must have "queueIdentity": true, else PF002; unknown keys are left '
  'for later protocols. Returns status (compiled, verified, recompiled, mismatch), differences, queueName. '
  '55000 for a queue that is damaged, missing or not the flow''s own.';
