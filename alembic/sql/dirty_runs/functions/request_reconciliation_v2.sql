-- Make a processor look at a run again, although nothing was settled.
create or replace function pgflow.request_reconciliation_v2(run_id uuid)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  run pgflow.runs;
begin
  run := pgflow._v2_lock_run(request_reconciliation_v2.run_id);
  if run.run_id is null then
    return jsonb_build_object('outcome', 'unknown', 'reason', 'run');
  elsif not exists (select from pgflow.run_work w where w.run_id = run.run_id) then
    return jsonb_build_object('outcome', 'wrong_protocol', 'protocol_version', 1);
  elsif run.status <> 'started' then
    return jsonb_build_object('outcome', 'terminal', 'reason', 'run', 'status', run.status);
  end if;
  perform pgflow._v2_request(run.run_id);
  return (
    select jsonb_build_object(
      'outcome', 'requested', 'state', work.state, 'requested_generation', work.requested_generation
    )
    from pgflow.run_work work
    where work.run_id = run.run_id
  );
end;
$$;

comment on function pgflow.request_reconciliation_v2(uuid) is
  'Internal protocol. Raise the requested generation of a started run of protocol 2. Outcomes: requested (state, '
  'requested_generation), terminal, unknown, wrong_protocol.';
