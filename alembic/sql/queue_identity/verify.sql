-- The last look before the caller commits: refuse, SQLSTATE PF004, when invariants.sql, run just before, found
-- anything, or when columns, constraints and indexes are not what this revision makes.
--
-- It cannot happen but through something of the database's own, such as a trigger or an event trigger that changes what
-- the upgrade writes. One exception names everything at once: its detail has a line for each violation, a JSON object
-- with the columns of the cursor.
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

  -- pgflow-migrate verify compares the whole catalogue with the release's instead.
  select array_agg(w.what order by w.what collate "C") into wrong
  from (
    select format('pgflow.%s.queue_name is missing, nullable or generated', t.name) as what
    from unnest(array['steps', 'step_tasks']) as t (name)
    where not exists (
      select from pg_catalog.pg_attribute a
      where a.attrelid = format('pgflow.%I', t.name)::regclass
        and a.attname = 'queue_name' and a.attnotnull and a.attgenerated = '' and not a.attisdropped
    )
    union all
    select format('pgflow.%s lacks constraint %s', t.name, t.constraint_name)
    from (
      values
        ('flows', 'slug_is_valid'), ('steps', 'steps_step_slug_check'), ('steps', 'queue_name_is_canonical'),
        ('step_tasks', 'queue_name_is_canonical'), ('worker_functions', 'pause_has_a_reason')
    ) as t (name, constraint_name)
    where not exists (
      select from pg_catalog.pg_constraint c
      where c.conrelid = format('pgflow.%I', t.name)::regclass
        and c.conname = t.constraint_name and c.contype = 'c' and c.convalidated
    )
    union all
    select format('unique index pgflow.%s is missing or invalid', i.name)
    from unnest(array[
      'flows_slug_case_insensitive_key', 'steps_slug_case_insensitive_key', 'step_tasks_queue_message_key'
    ]) as i (name)
    where not exists (
      select from pg_catalog.pg_index x
      join pg_catalog.pg_class c on c.oid = x.indexrelid
      where c.relnamespace = 'pgflow'::regnamespace and c.relname = i.name and x.indisvalid and x.indisunique
    )
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
        'queue identity is incomplete: %s',
        case found_number when 1 then 'one invariant does not hold' else found_number || ' invariants do not hold' end
      ),
      detail = array_to_string(lines, chr(10)),
      hint = 'Nothing was changed. Look for triggers and event triggers that change what the upgrade writes.';
  end if;
end;
$verify$;
