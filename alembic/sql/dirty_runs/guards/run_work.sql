-- The work row: of a run of protocol 2, stable, its generations only ahead, attention for a person.

create trigger work_is_stable
  before update or delete on pgflow.run_work
  for each row execute function pgflow._v2_guard_work();

-- After the foreign key: triggers come by name, and RI_ConstraintTrigger sorts before.
create trigger work_is_of_a_new_run
  after insert on pgflow.run_work
  for each row execute function pgflow._v2_guard_work();

create trigger work_is_not_truncated
  before truncate on pgflow.run_work
  for each statement execute function pgflow._v2_guard_work();

create constraint trigger run_keeps_its_work
  after delete on pgflow.run_work
  deferrable initially deferred
  for each row execute function pgflow._v2_require_work();
