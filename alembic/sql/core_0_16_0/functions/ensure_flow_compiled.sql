-- ensure_flow_compiled(flow_slug, shape): what a worker calls when it starts.
-- Why the lock: workers of one flow start together, and only one may create it.
-- Core behaviour: flow shape JSON, ensure_flow_compiled.
-- Locks: transaction-level advisory lock (1, hashtext(flow_slug)).

create function pgflow.ensure_flow_compiled(
  flow_slug text,
  shape jsonb
)
returns jsonb
language plpgsql
set search_path = ''
as $function$
declare
  v_differences text[];
begin
  perform pg_advisory_xact_lock(1, hashtext(ensure_flow_compiled.flow_slug));

  if not exists (
    select from pgflow.flows as flow where flow.flow_slug = ensure_flow_compiled.flow_slug
  ) then
    perform pgflow._create_flow_from_shape(ensure_flow_compiled.flow_slug, ensure_flow_compiled.shape);
    return jsonb_build_object('status', 'compiled', 'differences', '[]'::jsonb);
  end if;

  v_differences := pgflow._compare_flow_shapes(
    ensure_flow_compiled.shape,
    pgflow._get_flow_shape(ensure_flow_compiled.flow_slug)
  );
  if cardinality(v_differences) = 0 then
    return jsonb_build_object('status', 'verified', 'differences', '[]'::jsonb);
  end if;

  -- Recompiling deletes every run of the flow: only a local stack may.
  if pgflow.is_local() then
    perform pgflow.delete_flow_and_data(ensure_flow_compiled.flow_slug);
    perform pgflow._create_flow_from_shape(ensure_flow_compiled.flow_slug, ensure_flow_compiled.shape);
    return jsonb_build_object('status', 'recompiled', 'differences', to_jsonb(v_differences));
  end if;

  return jsonb_build_object('status', 'mismatch', 'differences', to_jsonb(v_differences));
end
$function$;

comment on function pgflow.ensure_flow_compiled(text, jsonb) is
  'Creates the flow, or compares it with the worker''s shape. Returns {"status", "differences"}; '
  'status is compiled, verified, recompiled or mismatch.';
