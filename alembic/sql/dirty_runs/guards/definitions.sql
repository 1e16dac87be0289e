-- A definition stays as it is while a run of protocol 2 needs it, whoever writes: functions, or SQL by hand.

create trigger protocol_2_freeze
  before update or delete on pgflow.flows
  for each row execute function pgflow._v2_guard_definition();

create trigger protocol_2_freeze
  before insert or update or delete on pgflow.steps
  for each row execute function pgflow._v2_guard_definition();

create trigger protocol_2_freeze
  before insert or update or delete on pgflow.deps
  for each row execute function pgflow._v2_guard_definition();
