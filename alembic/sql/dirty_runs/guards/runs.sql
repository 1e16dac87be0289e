-- Address and input of a run of protocol 2, and its end, are final; its output is bounded. No function of protocol 1
-- gets to the trigger function but with a large output, which is allowed there.
-- After the update: a trigger before it would lock the row once more for every update of every run, also where no
-- condition holds.
-- Input as text: as jsonb 1 equals 1.0, and as many zeros as make it too large.
create trigger protocol_2_identity
  after update of run_id, flow_slug, input on pgflow.runs
  for each row
  when (
    (old.run_id, old.flow_slug, old.input::text) is distinct from (new.run_id, new.flow_slug, new.input::text)
  )
  execute function pgflow._v2_guard_run();

-- run_output_bytes of the contract. One trigger for both: it is looked at whenever a run ends.
create trigger protocol_2_end
  after update of status, output on pgflow.runs
  for each row
  when ((old.status <> 'started' and new.status <> old.status) or octet_length(new.output::text) > 65670)
  execute function pgflow._v2_guard_run();
