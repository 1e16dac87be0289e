-- The last look before the caller commits: refuse, SQLSTATE PF004, when invariants.sql, run just before, found
-- anything, or when what this revision makes is not there. As queue_identity/verify.sql.
do $verify$
declare
  violations_cursor refcursor := 'pgflow_migrate_violations';
  violation record;
  found_number integer := 0;
  lines text[] := '{}';
  wrong text[];
begin
  loop
    fetch violations_cursor into violation;
    exit when not found;
    found_number := found_number + 1;
    lines := lines || json_build_object(
      'check', violation."check", 'subject', violation.subject, 'count', violation.count,
      'samples', violation.samples, 'hint', violation.hint
    )::text;
  end loop;
  close violations_cursor;

  select array_agg(w.what order by w.what collate "C") into wrong
  from (
    select format('pgflow.%s lacks trigger %s, or it is disabled', t.relation, t.name) as what
    from (
      values
        ('runs', 'protocol_2_identity'), ('runs', 'protocol_2_end'),
        ('run_work', 'work_is_stable'), ('run_work', 'work_is_of_a_new_run'),
        ('run_work', 'work_is_not_truncated'), ('run_work', 'run_keeps_its_work'),
        ('task_claims', 'claim_is_evidence'), ('task_claims', 'claims_are_not_truncated'),
        ('step_tasks', 'protocol_2_address'), ('flows', 'protocol_2_freeze'), ('steps', 'protocol_2_freeze'),
        ('deps', 'protocol_2_freeze')
    ) as t (relation, name)
    where not exists (
      select from pg_catalog.pg_trigger g
      where g.tgrelid = format('pgflow.%I', t.relation)::regclass and g.tgname = t.name and g.tgenabled = 'O'
    )
    union all
    select 'a run is not of protocol 1'
    where exists (select from pgflow.run_work)
  ) w;
  if cardinality(wrong) > 0 then
    found_number := found_number + 1;
    lines := lines || json_build_object(
      'check', 'catalogue', 'subject', 'schema pgflow', 'count', cardinality(wrong), 'samples', wrong[1:20],
      'hint', 'The upgrade makes these; look for an event trigger that undoes it.'
    )::text;
  end if;

  if found_number > 0 then
    raise exception using
      errcode = 'PF004',
      message = format(
        'dirty_runs is incomplete: %s',
        case found_number when 1 then 'one invariant does not hold' else found_number || ' invariants do not hold' end
      ),
      detail = array_to_string(lines, chr(10)),
      hint = 'Nothing was changed. Look for triggers and event triggers that change what the upgrade writes.';
  end if;
end;
$verify$;
