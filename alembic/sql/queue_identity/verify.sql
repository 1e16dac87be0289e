-- The last look before the caller commits: what was promised, checked on what is there.
do $verify$
declare
  unrouted_steps bigint;
  unrouted_tasks bigint;
  loose_columns text;
  invalid_indexes text;
begin
  select count(*) into unrouted_steps from pgflow.steps s where s.queue_name is distinct from lower(s.flow_slug);
  select count(*) into unrouted_tasks from pgflow.step_tasks t where t.queue_name is distinct from lower(t.flow_slug);
  if unrouted_steps > 0 or unrouted_tasks > 0 then
    raise exception 'queue identity is incomplete: % steps and % tasks are not routed to lower(flow_slug)',
      unrouted_steps, unrouted_tasks;
  end if;

  select string_agg(a.attrelid::regclass::text, ', ') into loose_columns
  from pg_catalog.pg_attribute a
  where a.attrelid in ('pgflow.steps'::regclass, 'pgflow.step_tasks'::regclass)
    and a.attname = 'queue_name'
    and (not a.attnotnull or a.attgenerated <> '');
  if loose_columns is not null then
    raise exception 'queue_name is nullable or still generated on %', loose_columns;
  end if;

  select string_agg(wanted.name, ', ') into invalid_indexes
  from unnest(array[
    'flows_slug_case_insensitive_key', 'steps_slug_case_insensitive_key', 'step_tasks_queue_message_key'
  ]) as wanted (name)
  where not exists (
    select from pg_catalog.pg_index i
    join pg_catalog.pg_class c on c.oid = i.indexrelid
    where c.relnamespace = 'pgflow'::regnamespace and c.relname = wanted.name and i.indisvalid and i.indisunique
  );
  if invalid_indexes is not null then
    raise exception 'unique indexes are missing or invalid: %', invalid_indexes;
  end if;
end;
$verify$;
