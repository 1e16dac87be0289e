-- Which functions there are before the new ones come, and who may call them: new_functions.sql reads it.
do $before$
declare
  workers_calls constant text[] := array['ensure_flow_compiled', 'start_tasks'];
  calls constant text[] := workers_calls || array[
    'add_step', 'complete_task', 'create_flow', 'delete_flow_and_data', 'ensure_workers', 'fail_task',
    'mark_worker_stopped', 'requeue_stalled_tasks', 'start_flow', 'start_flow_with_states', 'start_ready_steps',
    'track_worker_function'
  ];
begin
  perform set_config(
    'pgflow_migrate.functions_before',
    (
      select jsonb_build_object(
        'functions', jsonb_agg(distinct p.oid),
        'owner', max(p.proowner::bigint) filter (where p.proname = 'start_tasks'),
        -- 0 is PUBLIC.
        'callers', jsonb_agg(distinct a.grantee) filter (where p.proname = any (calls)),
        'workers', jsonb_agg(distinct a.grantee) filter (where p.proname = any (workers_calls))
      )::text
      from pg_catalog.pg_proc p
      cross join lateral aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
      where p.pronamespace = 'pgflow'::regnamespace
    ),
    true
  );
end;
$before$;
