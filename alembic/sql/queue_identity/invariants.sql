-- What must hold in a database with queue identity, at any time: what does not, as rows of the cursor
-- pgflow_migrate_violations.
--
-- The upgrade runs this text before it commits, and pgflow-migrate verify runs it in a read-only snapshot. It only
-- reads: the catalogue, pgflow's definitions and tasks, pgmq.meta, and the ids of messages; never a message's body. It
-- needs USAGE on the schemas pgflow and pgmq and SELECT on what it reads.
--
-- Columns: "check"    the invariant's stable name, described in docs/verify.md
--          subject    flow or queue, as stored
--          count      how many things break it
--          samples    the first 20 of them: run_id/step_slug/task_index, queue/msg_id, names or reasons
--          hint       what to do
do $invariants$
declare
  sample_limit constant integer := 20;
  queues_per_query constant integer := 500;
  queue_name_pattern constant text := '^[a-z0-9_]{1,47}$';
  caller_search_path constant text := pg_catalog.current_setting('search_path');
  caller_work_mem constant text := pg_catalog.current_setting('work_mem');
  caller_jit constant text := pg_catalog.current_setting('jit');
  caller_nestloop constant text := pg_catalog.current_setting('enable_nestloop');
  caller_quoting constant text := pg_catalog.current_setting('quote_all_identifiers');

  violations jsonb := '[]';
  batch_violations jsonb;
  -- Every queue that pgflow owns, and the flow that it is of; parallel arrays.
  queue_names text[];
  queue_flows text[];
  readable_queues text[];
  messages_sql text;
  ids_are_unique boolean;
  violations_cursor refcursor := 'pgflow_migrate_violations';
begin
  -- Names below mean what they say, whatever the caller's settings; all are given back at the end.
  perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  perform set_config('quote_all_identifiers', 'off', true);
  perform set_config('jit', 'off', true);
  -- The planner cannot know how many rows arrays and new tables hold; hashing is never the bad choice.
  perform set_config('enable_nestloop', 'off', true);
  if pg_size_bytes(caller_work_mem) < pg_size_bytes('64MB') then
    perform set_config('work_mem', '64MB', true);
  end if;

  -- Slugs. The rule is spelt out: pgflow.is_valid_slug() may have been replaced. ------------------------------

  with slug as (
    select f.flow_slug, f.flow_slug as slug from pgflow.flows f
    union all
    select s.flow_slug, s.step_slug from pgflow.steps s
  ),
  invalid as (
    select s.flow_slug, count(*) as count, array_agg(s.slug order by s.slug collate "C") as slugs
    from slug s
    where s.slug collate "C" !~ '^[a-zA-Z][a-zA-Z0-9_]{0,127}$' or s.slug ~ '__|_$' or s.slug = 'run'
    group by s.flow_slug
  )
  select violations || coalesce(jsonb_agg(v order by v.subject collate "C"), '[]')
  into violations
  from (
    select
      'slug-valid' as "check", 'flow ' || i.flow_slug as subject, i.count, i.slugs[1:sample_limit] as samples,
      'A slug has 1 to 128 ASCII letters, digits and single inner underscores, begins with a letter, and is not '
      '"run". Rename the flow or step, in code and database, once the flow''s runs have ended.' as hint
    from invalid i
  ) v;

  -- Only ASCII letters have case here, so that the verdict does not depend on the locale.
  with slug as (
    select null::text as flow_slug, f.flow_slug as slug from pgflow.flows f
    union all
    select s.flow_slug, s.step_slug from pgflow.steps s
  ),
  shared as (
    select s.flow_slug, array_agg(s.slug order by s.slug collate "C") as slugs
    from slug s
    group by s.flow_slug, lower(s.slug collate "C")
    having count(*) > 1
  )
  select violations || coalesce(jsonb_agg(v order by v.subject collate "C"), '[]')
  into violations
  from (
    select
      'slug-case-unique' as "check", 'flow ' || coalesce(s.flow_slug, s.slugs[1]) as subject,
      cardinality(s.slugs) as count, s.slugs[1:sample_limit] as samples,
      'These slugs differ only in case. Rename all but one, in code and database, once their runs have ended.' as hint
    from shared s
  ) v;

  -- Routes --------------------------------------------------------------------------------------------------

  select violations || coalesce(jsonb_agg(v order by v.subject collate "C"), '[]')
  into violations
  from (
    select
      'step-route' as "check", 'flow ' || s.flow_slug as subject, count(*) as count,
      (array_agg(format('%s in %s', s.step_slug, coalesce(quote_ident(s.queue_name), 'no queue'))
        order by s.step_slug collate "C"))[1:sample_limit] as samples,
      format('Tasks of these steps have to be sent to the flow''s own queue, %I.', lower(s.flow_slug)) as hint
    from pgflow.steps s
    where s.queue_name is distinct from lower(s.flow_slug)
      or s.queue_name collate "C" !~ queue_name_pattern
    group by s.flow_slug
  ) v;

  -- One pass over the tasks, against the few steps.
  select violations || coalesce(jsonb_agg(v order by v.subject collate "C"), '[]')
  into violations
  from (
    select
      'task-route' as "check", 'flow ' || n.flow_slug as subject, max(n.count) as count,
      array_agg(n.task order by n.number) as samples,
      'These tasks name another queue than their step does, or a step that does not exist. Find out which queue holds '
      'their messages before you correct either.' as hint
    from (
      select
        t.flow_slug, concat_ws('/', t.run_id, t.step_slug, t.task_index) as task,
        count(*) over (partition by t.flow_slug) as count,
        row_number() over (
          partition by t.flow_slug order by t.run_id, t.step_slug collate "C", t.task_index
        ) as number
      from pgflow.step_tasks t
      where not exists (
        select from pgflow.steps s
        where s.flow_slug = t.flow_slug and s.step_slug = t.step_slug and s.queue_name = t.queue_name
      )
    ) n
    where n.number <= sample_limit
    group by n.flow_slug
  ) v;

  -- Queues: of every step; of a flow without steps, when queue and flow were made in one transaction. ----------

  select coalesce(array_agg(q.name order by q.name collate "C"), '{}'),
    coalesce(array_agg(q.flow_slug order by q.name collate "C"), '{}')
  into queue_names, queue_flows
  from (
    select owned.name, min(owned.flow_slug collate "C") as flow_slug
    from (
      select s.queue_name as name, s.flow_slug
      from pgflow.steps s
      where s.queue_name is not null
      union all
      select lower(f.flow_slug), f.flow_slug
      from pgflow.flows f
      join pgmq.meta m on lower(m.queue_name) = lower(f.flow_slug) and m.created_at = f.created_at
      where not exists (select from pgflow.steps s where s.flow_slug = f.flow_slug)
    ) owned
    group by owned.name
  ) q;

  with queue as (
    select q.name, q.flow_slug
    from unnest(queue_names, queue_flows) as q (name, flow_slug)
  ),
  meta as (
    select
      q.name, count(m.queue_name) as count,
      array_agg(m.queue_name::text order by m.queue_name collate "C") filter (where m.queue_name is not null)
        as spellings,
      bool_or(m.is_partitioned) as partitioned, bool_or(m.is_unlogged) as unlogged
    from queue q
    left join pgmq.meta m on lower(m.queue_name) = q.name
    group by q.name
  ),
  part (prefix, columns) as (
    values
      ('q_', array['msg_id bigint', 'read_ct integer', 'enqueued_at timestamp with time zone',
        'vt timestamp with time zone', 'message jsonb', 'headers jsonb']),
      ('a_', array['msg_id bigint', 'read_ct integer', 'enqueued_at timestamp with time zone',
        'archived_at timestamp with time zone', 'vt timestamp with time zone', 'message jsonb', 'headers jsonb'])
  ),
  relation as (
    select
      q.name, p.prefix, p.columns, 'pgmq.' || quote_ident(p.prefix || q.name) as table_name,
      c.oid, c.relkind, c.relpersistence
    from queue q
    cross join part p
    left join pg_class c
      on c.relname = p.prefix || q.name
      and c.relnamespace = (select n.oid from pg_namespace n where n.nspname = 'pgmq')
  ),
  attribute as (
    select
      r.oid, a.attname || ' ' || format_type(a.atttypid, null) as definition,
      a.attname = 'msg_id' and a.attidentity <> '' as numbered,
      a.attname = 'msg_id' and coalesce(i.indisprimary and i.indnkeyatts = 1, false) as is_key
    from relation r
    join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
    left join pg_index i on i.indrelid = r.oid and i.indisprimary and i.indkey[0] = a.attnum
    where r.relkind = 'r'
  ),
  shape as (
    select
      a.oid, array_agg(a.definition) as definitions, bool_or(a.numbered) as numbered, bool_or(a.is_key) as has_key
    from attribute a
    group by a.oid
  ),
  fault (name, what) as (
    select r.name, format('%s is missing', r.table_name)
    from relation r
    where r.oid is null
    union all
    select r.name, format('%s is not an ordinary, logged table', r.table_name)
    from relation r
    where r.relkind <> 'r' or r.relpersistence <> 'p'
    union all
    select r.name, format('%s has no column %s', r.table_name, wanted.definition)
    from relation r
    cross join unnest(r.columns) as wanted (definition)
    left join shape s on s.oid = r.oid
    where r.relkind = 'r' and not coalesce(s.definitions @> array[wanted.definition], false)
    union all
    select r.name, format('%s has no primary key on msg_id', r.table_name)
    from relation r
    left join shape s on s.oid = r.oid
    where r.relkind = 'r' and not coalesce(s.has_key, false)
    union all
    select r.name, format('%s.msg_id is not numbered by itself', r.table_name)
    from relation r
    left join shape s on s.oid = r.oid
    where r.relkind = 'r' and r.prefix = 'q_' and not coalesce(s.numbered, false)
    union all
    select m.name, 'pgmq.meta says partitioned' from meta m where m.partitioned
    union all
    select m.name, 'pgmq.meta says unlogged' from meta m where m.unlogged
  )
  select violations || coalesce(jsonb_agg(v order by v."check" collate "C", v.subject collate "C"), '[]')
  into violations
  from (
    select
      'queue-metadata' as "check", 'queue ' || m.name as subject, m.count,
      coalesce(m.spellings[1:sample_limit], '{}') as samples,
      case m.count
        when 0 then format('pgmq.meta has no row for this queue. If its tables are the flow''s, register them: '
          'select pgmq.create(%L);', m.name)
        else 'pgmq.meta has several spellings of this queue. Delete all rows but one.'
      end as hint
    from meta m
    where m.count <> 1
    union all
    select
      'queue-objects', 'queue ' || f.name, count(*),
      (array_agg(f.what order by f.what collate "C"))[1:sample_limit],
      format('What is missing pgmq.create(%L) makes; then set the queue''s sequence beyond the highest message_id of '
        'its tasks. Undo what is different.', f.name)
    from fault f
    group by f.name
  ) v;

  -- Messages: each has one task. Two tasks with one message are what the unique index keeps out. --------------

  -- Not over all of pg_index: reading a definition locks the index's table, and that may be anybody's.
  select i.indisunique and i.indisvalid into ids_are_unique
  from pg_index i
  where i.indexrelid = to_regclass('pgflow.step_tasks_queue_message_key');
  ids_are_unique := coalesce(
    ids_are_unique and pg_get_indexdef(to_regclass('pgflow.step_tasks_queue_message_key'))
      like '% USING btree (queue_name, message_id)% WHERE (message_id IS NOT NULL)',
    false
  );

  if not ids_are_unique then
    select violations || coalesce(jsonb_agg(v order by v.subject collate "C"), '[]')
    into violations
    from (
      select
        'message-of-one-task' as "check", 'queue ' || d.queue_name as subject, count(*) as count,
        (array_agg(format('%s/%s', d.queue_name, d.message_id) order by d.message_id))[1:sample_limit] as samples,
        'Several tasks name one message. Keep it on the task that the message''s body names; set message_id to null '
        'on the others, if they have ended.' as hint
      from (
        select t.queue_name, t.message_id
        from pgflow.step_tasks t
        where t.message_id is not null
        group by t.queue_name, t.message_id
        having count(*) > 1
      ) d
      group by d.queue_name
    ) v;
  end if;

  select coalesce(array_agg(q.name order by q.name collate "C"), '{}')
  into readable_queues
  from unnest(queue_names) as q (name)
  join pg_class c on c.relname = 'q_' || q.name and c.relkind in ('r', 'p')
  join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'pgmq'
  join pg_attribute a
    on a.attrelid = c.oid and a.attname = 'msg_id' and a.atttypid = 'bigint'::regtype and not a.attisdropped;

  for first_queue in 1 .. cardinality(readable_queues) by queues_per_query loop
    select string_agg(
      format('select %L::text as queue_name, msg_id from pgmq.%I', q.name, 'q_' || q.name), ' union all '
    )
    into messages_sql
    from unnest(readable_queues[first_queue : first_queue + queues_per_query - 1]) as q (name);

    begin
      -- With "offset 0" the planner has to look a message up in the index, instead of hashing all tasks once a batch.
      execute format($query$
        select jsonb_agg(v order by v.subject collate "C")
        from (
          select
            'message-without-task' as "check", 'queue ' || m.queue_name as subject, count(*) as count,
            (array_agg(format('%%s/%%s', m.queue_name, m.msg_id) order by m.msg_id))[1:$1] as samples,
            'No task has these messages, and a worker that reads one may stop. Nobody but pgflow may send into a '
            'flow''s queue. Archive them with pgmq.archive(queue_name, msg_id), or restore their tasks.' as hint
          from (%s) m
          where not exists (
            select from pgflow.step_tasks t where t.queue_name = m.queue_name and t.message_id = m.msg_id %s
          )
          group by m.queue_name
        ) v
        $query$, messages_sql, case when ids_are_unique then 'offset 0' end)
      into batch_violations
      using sample_limit;

      -- Leaving by an exception gives this batch's locks back: those of thousands of queues would exhaust the
      -- server's lock table.
      raise exception using errcode = 'PF000';
    exception
      when sqlstate 'PF000' then
        violations := violations || coalesce(batch_violations, '[]');
    end;
  end loop;

  -- Result --------------------------------------------------------------------------------------------------

  perform set_config('enable_nestloop', caller_nestloop, true);
  perform set_config('jit', caller_jit, true);
  perform set_config('work_mem', caller_work_mem, true);
  perform set_config('quote_all_identifiers', caller_quoting, true);

  open violations_cursor no scroll for
    select v."check", v.subject, v.count, v.samples, v.hint
    from rows from (
      jsonb_to_recordset(violations) as ("check" text, subject text, count bigint, samples text[], hint text)
    ) with ordinality as v ("check", subject, count, samples, hint, place)
    order by v.place;

  perform pg_catalog.set_config('search_path', caller_search_path, true);
end;
$invariants$;
