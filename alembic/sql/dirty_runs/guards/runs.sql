-- Address and input of a run of protocol 2, and its end, are final; its output is bounded. No function of protocol 1
-- gets to the trigger function but with a large output, which is allowed there.
-- Input as text: as jsonb 1 equals 1.0, and as many zeros as make it too large.
create trigger protocol_2_identity
  before update of run_id, flow_slug, input on pgflow.runs
  for each row
  when (
    (old.run_id, old.flow_slug, old.input::text) is distinct from (new.run_id, new.flow_slug, new.input::text)
  )
  execute function pgflow._v2_guard_run();

create trigger protocol_2_end
  before update of status on pgflow.runs
  for each row
  when (old.status <> 'started' and new.status <> old.status)
  execute function pgflow._v2_guard_run();

-- run_output_bytes of the contract.
create trigger protocol_2_output
  before update of output on pgflow.runs
  for each row
  when (octet_length(new.output::text) > 65670)
  execute function pgflow._v2_guard_run();
