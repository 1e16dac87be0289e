-- get_run_with_states(run_id): a run and its steps in one document, for clients.
-- As before; new is the pinned search_path.

create or replace function pgflow.get_run_with_states(run_id uuid)
returns jsonb
language sql
security definer
set search_path = pg_catalog, pg_temp
as $function$
  select jsonb_build_object(
    'run', to_jsonb(run),
    'steps', coalesce(
      (
        select jsonb_agg(to_jsonb(state))
        from pgflow.step_states as state
        where state.run_id = run.run_id
      ),
      '[]'
    )
  )
  from pgflow.runs as run
  where run.run_id = get_run_with_states.run_id
$function$;

comment on function pgflow.get_run_with_states(uuid) is
  'The run and its step states, every column a key, as {"run", "steps"}; null for an unknown run.';
