-- Identity of a run of protocol 2, and its end, are final; and it has its work row from the start.

create trigger protocol_2_identity
  before update of run_id, flow_slug, input, protocol_version, definition_sha256, status on pgflow.runs
  for each row
  when (
    old.protocol_version <> new.protocol_version
    or (
      old.protocol_version = 2
      and (
        (old.run_id, old.flow_slug, old.definition_sha256)
          is distinct from (new.run_id, new.flow_slug, new.definition_sha256)
        or old.input::text <> new.input::text
        or (old.status <> 'started' and new.status <> old.status)
      )
    )
  )
  execute function pgflow._v2_guard_run();

create constraint trigger protocol_2_has_work
  after insert on pgflow.runs
  deferrable initially deferred
  for each row
  when (new.protocol_version = 2)
  execute function pgflow._v2_require_work();
