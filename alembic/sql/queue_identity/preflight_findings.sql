-- What stands between this database and queue identity, as rows of the cursor pgflow_migrate_findings.
--
-- The audit script and the upgrade run this same text: the audit in a read-only snapshot, the upgrade under
-- its locks. It only reads: the catalogue, pgflow's tables, pgmq.meta, and the queue tables and sequences of
-- flows; it never returns a message's body. It needs USAGE on the schemas pgflow and pgmq and SELECT on what it
-- reads; what is lacking becomes a finding, not an error.
--
-- Columns: severity    error (blocks the upgrade), warning, info
--          code        the finding's stable name, described in docs/findings.md
--          flow_slug, step_slug, queue_name    as stored; null where they do not apply (flow_slug also where
--                      several flows share the queue)
--          count       how many things were found
--          samples     the first 20 of them: run_id/step_slug/task_index, queue/msg_id, names or reasons
--          hint        what to do
do $findings$
declare
  -- md5 of the documented pgflow.prune_data_older_than(interval): its prosrc, and that in lower case without
  -- comments and white space.
  stock_prune_md5s constant text[] := array[
    'd87aba89f910570d5a3c17ba1243eb76', 'fcba8d05326f47f4b94801fadc18a15c',  -- since 0.7.0
    '87cdbe74c9a3ce387bf381c2445412dd', 'e7cbf1f31d65d4cb3020b74b015072da'   -- 0.2.3 to 0.6.1
  ];
  old_slug_pattern constant text := '^[a-zA-Z_][a-zA-Z0-9_]{0,127}$';
  queue_name_pattern constant text := '^[a-z0-9_]{1,47}$';
  sample_limit constant integer := 20;
  queues_per_query constant integer := 500;
  -- Parts of hints.
  as_renaming_a_flow constant text :=
    'as "Renaming a flow" in docs/findings.md does it (pgflow-migrate docs findings).';
  as_renaming_a_step constant text :=
    'as "Renaming a step" in docs/findings.md does it (pgflow-migrate docs findings).';
  after_creation constant text := 'select setval(pg_get_serial_sequence(%L, ''msg_id''), max(message_id)) '
    'from pgflow.step_tasks where lower(flow_slug) = %L having max(message_id) > 0; '
    'Tasks that were queued or started have lost their messages with the queue, and no worker will ever claim them: '
    'to send them anew, see "Live tasks without a message" in docs/findings.md (pgflow-migrate docs findings).';
  caller_search_path constant text := pg_catalog.current_setting('search_path');
  caller_work_mem constant text := pg_catalog.current_setting('work_mem');
  caller_jit constant text := pg_catalog.current_setting('jit');
  caller_nestloop constant text := pg_catalog.current_setting('enable_nestloop');
  caller_quoting constant text := pg_catalog.current_setting('quote_all_identifiers');

  findings jsonb := '[]';
  batch_findings jsonb;
  differences text[];
  unreadable text[];
  already_upgraded boolean;
  pgflow_there boolean;
  pgmq_there boolean;
  release text;
  definitions_readable boolean;
  runtime_readable boolean;
  meta_readable boolean;
  pgmq_detaches_queues boolean;
  last_read_at_expected boolean;
  flow_count bigint;
  step_count bigint;
  task_count bigint;
  without_message_count bigint;
  in_other_flow_count bigint;
  message_count bigint := 0;
  batch_message_count bigint;
  batch_message_ids bigint[];
  task_totals jsonb := '[]';
  counters jsonb := '[]';
  counters_sql text;
  metadata jsonb := '[]';
  -- The queues of flows whose names can be queue names; parallel arrays, ordered by name.
  queue_names text[] := '{}';
  queue_flows text[] := '{}';
  -- Those of them whose messages can be read.
  readable_queues text[];
  batch_queues text[];
  messages_sql text;
  findings_cursor refcursor := 'pgflow_migrate_findings';
begin
  -- Names below mean what they say, whatever the caller's settings; all are given back at the end.
  perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  perform set_config('quote_all_identifiers', 'off', true);
  perform set_config('jit', 'off', true);
  -- The planner cannot know how many rows the arrays and lists below hold; hashing is never the bad choice.
  perform set_config('enable_nestloop', 'off', true);
  if pg_size_bytes(caller_work_mem) < pg_size_bytes('64MB') then
    perform set_config('work_mem', '64MB', true);
  end if;

  -- Release: is this the pgflow that the upgrade starts from? -----------------------------------------------

  with recursive wanted (table_name, columns) as (
    values
      ('flows', 'flow_slug text, opt_max_attempts integer, opt_base_delay integer, opt_timeout integer, '
        'created_at timestamp with time zone'),
      ('steps', 'flow_slug text, step_slug text, step_type text, step_index integer, deps_count integer, '
        'opt_max_attempts integer, opt_base_delay integer, opt_timeout integer, opt_start_delay integer, '
        'created_at timestamp with time zone, required_input_pattern jsonb, forbidden_input_pattern jsonb, '
        'when_unmet text, when_exhausted text'),
      ('deps', 'flow_slug text, dep_slug text, step_slug text, created_at timestamp with time zone'),
      ('runs', 'run_id uuid, flow_slug text, status text, input jsonb, output jsonb, '
        'remaining_steps integer, started_at timestamp with time zone, '
        'completed_at timestamp with time zone, failed_at timestamp with time zone'),
      ('step_states', 'flow_slug text, run_id uuid, step_slug text, status text, remaining_tasks integer, '
        'remaining_deps integer, initial_tasks integer, output jsonb, error_message text, skip_reason text, '
        'created_at timestamp with time zone, started_at timestamp with time zone, '
        'completed_at timestamp with time zone, failed_at timestamp with time zone, '
        'skipped_at timestamp with time zone'),
      ('step_tasks', 'flow_slug text, run_id uuid, step_slug text, message_id bigint, task_index integer, '
        'status text, attempts_count integer, error_message text, output jsonb, last_worker_id uuid, '
        'queued_at timestamp with time zone, started_at timestamp with time zone, '
        'completed_at timestamp with time zone, failed_at timestamp with time zone, requeued_count integer, '
        'last_requeued_at timestamp with time zone, permanently_stalled_at timestamp with time zone'),
      ('workers', 'worker_id uuid, queue_name text, function_name text, started_at timestamp with time zone, '
        'deprecated_at timestamp with time zone, last_heartbeat_at timestamp with time zone, '
        'stopped_at timestamp with time zone'),
      ('worker_functions', 'function_name text, enabled boolean, debounce interval, start_mode text, '
        'last_invoked_at timestamp with time zone, created_at timestamp with time zone, '
        'updated_at timestamp with time zone')
  ),
  existing as (
    select c.oid, c.relname::text as table_name
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'pgflow' and c.relkind = 'r'
  ),
  attribute as (
    select
      e.table_name, a.attname::text as name,
      a.attname || ' ' || format_type(a.atttypid, a.atttypmod) as definition
    from existing e
    join pg_attribute a on a.attrelid = e.oid
    where a.attnum > 0 and not a.attisdropped
  ),
  routine as (
    select p.oid, p.proname || '(' || oidvectortypes(p.proargtypes) || ')' as signature
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'pgflow'
  ),
  -- The row types of the tables that the upgrade rewrites, and every type that has one of them inside.
  row_type (oid, table_name) as (
    select t.oid, e.table_name
    from existing e
    join pg_type t on t.typrelid = e.oid
    where e.table_name in ('steps', 'step_tasks')
    union
    select inside.oid, r.table_name
    from row_type r
    cross join lateral (
      select t.oid from pg_type t where t.typelem = r.oid or t.typbasetype = r.oid
      union all
      select g.rngtypid from pg_range g where g.rngsubtype = r.oid
      union all
      select g.rngmultitypid from pg_range g where g.rngsubtype = r.oid
      union all
      select c.reltype
      from pg_attribute a
      join pg_class c on c.oid = a.attrelid and c.relkind in ('c', 'v')
      where a.atttypid = r.oid and not a.attisdropped
    ) inside
  ),
  difference (what) as (
    select format('table pgflow.%s is missing', w.table_name)
    from wanted w
    where not exists (select from existing e where e.table_name = w.table_name)
    union all
    select format('pgflow.%s lacks column %s', w.table_name, c.definition)
    from wanted w
    join existing e on e.table_name = w.table_name
    cross join unnest(string_to_array(w.columns, ', ')) as c (definition)
    where not exists (
      select from attribute a where a.table_name = w.table_name and a.definition = c.definition
    )
    union all
    select format('pgflow.%s has column queue_name already', a.table_name)
    from attribute a
    where a.table_name in ('steps', 'step_tasks') and a.name = 'queue_name'
    union all
    select format('pgflow.%s has column %s already', a.table_name, a.name)
    from attribute a
    where a.table_name = 'worker_functions' and a.name in ('paused_at', 'pause_reason')
    union all
    select format('function pgflow.%s is missing', f.signature)
    from unnest(array[
      'start_flow(text, jsonb, uuid)', 'start_ready_steps(uuid)', 'start_tasks(text, bigint[], uuid)',
      'complete_task(uuid, text, integer, jsonb)', 'fail_task(uuid, text, integer, text)'
    ]) as f (signature)
    where not exists (select from routine r where r.signature = f.signature)
    union all
    -- 0.16.0 dropped the third argument; the chain of revisions takes 0.15.x there.
    select 'function pgflow.ensure_flow_compiled(text, jsonb) is missing'
    where not exists (
      select from routine r
      where r.signature in (
        'ensure_flow_compiled(text, jsonb)', 'ensure_flow_compiled(text, jsonb, boolean)',
        'ensure_flow_compiled(text, jsonb, jsonb)'  -- of queue identity: in the way, see below
      )
    )
    union all
    -- What the upgrade will create must not be there: replaced functions would keep a stranger's ownership.
    select format('function pgflow.%s is in the way', r.signature)
    from routine r
    where r.signature = 'ensure_flow_compiled(text, jsonb, jsonb)' or split_part(r.signature, '(', 1) in (
      '_archive_messages', '_claim_messages', '_complete_step_if_last_task', '_end_unfinished_tasks',
      '_fail_run_for_exhausted_task', '_fail_run_for_type_violation', '_fail_run_for_unmet_condition', '_free_messages',
      '_judge_messages', '_lock_flow', '_lock_flow_and_runs', '_message_fault', '_pause_worker_function',
      '_provision_queue', '_queue_faults', '_queue_is_provisioned', '_queue_traces', '_refuse_batch',
      '_release_dependents_of_skipped', '_send_failure_events', '_send_skipped_events',
      '_skip_step_for_exhausted_task', '_task_records', '_unmet_conditions', 'claim_tasks',
      'resume_worker_function'
    )
    union all
    select format('relation pgflow.%s is in the way', c.relname)
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'pgflow' and c.relname in (
      'flows_slug_case_insensitive_key', 'steps_slug_case_insensitive_key', 'step_tasks_queue_message_key'
    )
    union all
    select format('constraint %s on pgflow.%s is in the way', o.conname, e.table_name)
    from pg_constraint o
    join existing e on e.oid = o.conrelid
    where (e.table_name in ('steps', 'step_tasks') and o.conname = 'queue_name_is_canonical')
      or (e.table_name = 'worker_functions' and o.conname = 'pause_has_a_reason')
    union all
    -- PostgreSQL rewrites no table whose row type is stored elsewhere.
    select format(
      'column %I.%I.%I of type pgflow.%s is in the way', n.nspname, c.relname, a.attname, r.table_name
    )
    from row_type r
    join pg_attribute a on a.atttypid = r.oid and not a.attisdropped
    join pg_class c on c.oid = a.attrelid and c.relkind in ('r', 'm', 'p')
    join pg_namespace n on n.oid = c.relnamespace
    union all
    -- A child's rows would count as pgflow's, and no unique index would hold for both. A partition takes no column.
    select format('table %I.%I, which inherits from pgflow.%s, is in the way', n.nspname, c.relname, e.table_name)
    from existing e
    join pg_inherits i on i.inhparent = e.oid
    join pg_class c on c.oid = i.inhrelid
    join pg_namespace n on n.oid = c.relnamespace
    union all
    select format('table %I.%I, whose partition pgflow.%s is, is in the way', n.nspname, c.relname, e.table_name)
    from existing e
    join pg_inherits i on i.inhrelid = e.oid
    join pg_class c on c.oid = i.inhparent and c.relkind = 'p'
    join pg_namespace n on n.oid = c.relnamespace
    union all
    -- The upgrade drops the start-up call of old workers.
    select distinct format('%s, which calls pgflow.%s, is in the way',
      pg_describe_object(d.classid, d.objid, d.objsubid), r.signature)
    from routine r
    join pg_depend d on d.refclassid = 'pg_proc'::regclass and d.refobjid = r.oid and d.deptype in ('n', 'a')
    where r.signature in ('ensure_flow_compiled(text, jsonb)', 'ensure_flow_compiled(text, jsonb, boolean)')
    union all
    select format('extension %I, which has pgflow.%s, is in the way', x.extname, r.signature)
    from routine r
    join pg_depend d on d.classid = 'pg_proc'::regclass and d.objid = r.oid and d.deptype = 'e'
    join pg_extension x on d.refclassid = 'pg_extension'::regclass and x.oid = d.refobjid
    where r.signature in ('ensure_flow_compiled(text, jsonb)', 'ensure_flow_compiled(text, jsonb, boolean)')
  )
  select
    -- What is in the way comes last: of a database that is half upgraded it could crowd out what is missing.
    coalesce(array_agg(d.what order by d.what like '% in the way', d.what collate "C"), '{}'),
    case
      when exists (select from routine r where r.signature = 'ensure_flow_compiled(text, jsonb)')
        then '0.16.0'
      else '0.15.0 or 0.15.1'
    end
  into differences, release
  from difference d;

  if not exists (select from pg_namespace where nspname = 'pgflow') then
    differences := array['schema pgflow is missing'];
    release := 'not installed';
  end if;

  -- After the upgrade all of its own objects are there, and nothing is missing.
  already_upgraded := differences @> array[
      'pgflow.steps has column queue_name already',
      'pgflow.step_tasks has column queue_name already',
      'constraint queue_name_is_canonical on pgflow.steps is in the way',
      'constraint queue_name_is_canonical on pgflow.step_tasks is in the way',
      'relation pgflow.flows_slug_case_insensitive_key is in the way',
      'relation pgflow.steps_slug_case_insensitive_key is in the way',
      'relation pgflow.step_tasks_queue_message_key is in the way'
    ]
    and not exists (
      select from unnest(differences) as d (what) where d.what ~ ' is missing$| lacks column '
    );
  pgflow_there := cardinality(differences) = 0;

  if already_upgraded then
    release := 'queue_identity or later';
    findings := findings || jsonb_build_object(
      'code', 'already-upgraded',
      'count', 1,
      'samples', jsonb_build_array('queue_identity or later'),
      'hint', 'Queue identity is here already: this audit has nothing to look for, and nothing else was '
        'inspected. pgflow-migrate status says which revision this is, and what is pending.'
    );
  elsif not pgflow_there then
    release := case release when 'not installed' then release else 'unknown' end;
    findings := findings || jsonb_build_object(
      'code', 'release-unexpected',
      'count', cardinality(differences),
      'samples', to_jsonb(differences[1:sample_limit]),
      'hint', case
        when 'schema pgflow is missing' = any (differences)
          then 'There is no pgflow in this database: check the connection string.'
        when exists (select from unnest(differences) as d (what) where d.what like '% queue_name already')
          then 'Part of queue identity is here, part is not: pgflow-migrate status names what differs. '
            'Nothing else was inspected.'
        when not exists (select from unnest(differences) as d (what) where d.what not like '% is in the way')
          then 'The upgrade makes or drops these itself, or rewrites the table. Rename or drop them (and make '
            'them again afterwards); nothing else was inspected.'
        else 'Bring pgflow to release 0.15.0, 0.15.1 or 0.16.0 first; nothing else was inspected.'
      end
    );
  end if;

  -- Functions of the user's that take or return rows which get a column: their text may list the columns -----

  if pgflow_there then
    with signature as (
      select distinct p.oid, p.oid::regprocedure::text as name
      from pg_proc p
      cross join lateral unnest(p.prorettype || coalesce(p.proallargtypes, p.proargtypes::oid[])) as used (type)
      join pg_type t on used.type in (t.oid, t.typarray)
      join pg_class c on c.oid = t.typrelid and c.relname in ('steps', 'step_tasks', 'worker_functions')
      join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'pgflow'
      where p.pronamespace <> n.oid or p.proname not in ('add_step', 'complete_task', 'fail_task')
    )
    select findings || coalesce(jsonb_agg(f), '[]')
    into findings
    from (
      select
        'row-type-in-function' as code, count(*) as count,
        (array_agg(s.name order by s.name collate "C"))[1:sample_limit] as samples,
        'The rows of pgflow.steps, step_tasks and worker_functions get columns at their end. Functions that list the '
        'columns of such a row, or return them from BEGIN ATOMIC (where * is a list, too), fail from then on (42P13, '
        '42804): have their new text ready.'
        as hint
      from signature s
      having count(*) > 0
    ) f;
  end if;

  -- PGMQ: 1.5.0 or newer, as an extension or from plain SQL -------------------------------------------------

  with attribute as (
    select c.relname || '.' || a.attname as what
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    join pg_attribute a on a.attrelid = c.oid
    where n.nspname = 'pgmq' and a.attnum > 0 and not a.attisdropped
      and (c.relname, c.relkind) in (('meta', 'r'), ('message_record', 'c'))
  )
  select
    count(*) filter (where a.what in ('meta.queue_name', 'meta.is_partitioned', 'meta.is_unlogged')) = 3
      and count(*) filter (where a.what = 'message_record.headers') = 1,
    count(*) filter (where a.what = 'message_record.last_read_at') = 1
  into pgmq_there, last_read_at_expected
  from attribute a;

  -- 1.6.0 brought this function, and stopped making queues members of the extension.
  pgmq_detaches_queues := exists (
    select from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'pgmq' and p.proname = 'acquire_queue_lock'
  );

  if not pgmq_there and not already_upgraded then
    findings := findings || jsonb_build_object(
      'code', 'pgmq-absent',
      'count', 1,
      'samples', jsonb_build_array(),
      'hint', 'There is no PGMQ 1.5.0 or newer (table pgmq.meta, type pgmq.message_record with headers). '
        'Install it: create extension pgmq; and restore the queues.'
    );
  end if;

  -- Nothing of an upgraded database is looked at.
  pgmq_there := pgmq_there and not already_upgraded;

  -- Privileges ----------------------------------------------------------------------------------------------

  -- The upgrade reads more than this text does, and must not miss rows there either.
  with wanted (schema_name, table_name, read_here) as (
    values
      ('pgflow', null, null), ('pgflow', 'flows', true), ('pgflow', 'steps', true), ('pgflow', 'runs', true),
      ('pgflow', 'step_tasks', true), ('pgflow', 'deps', false), ('pgflow', 'step_states', false),
      ('pgflow', 'workers', false), ('pgflow', 'worker_functions', false),
      ('pgmq', null, null), ('pgmq', 'meta', true)
  ),
  lacking as (
    select
      concat_ws('.', w.schema_name, w.table_name) as object,
      case
        when w.table_name is null and not has_schema_privilege(n.oid, 'usage')
          then format('grant usage on schema %I to %I;', w.schema_name, current_user)
        when w.table_name is not null and w.read_here and not has_table_privilege(c.oid, 'select')
          then format('grant select on %I.%I to %I;', w.schema_name, w.table_name, current_user)
        when w.table_name is not null and row_security_active(c.oid)
          then format('Row security hides rows from %I: run as a role with bypassrls or, unless it is forced, '
            'as the owner.', current_user)
      end as remedy
    from wanted w
    join pg_namespace n on n.nspname = w.schema_name
    left join pg_class c on c.relnamespace = n.oid and c.relname = w.table_name
    where (w.table_name is null or c.oid is not null)
      and (w.schema_name <> 'pgflow' or pgflow_there)
      and (w.schema_name <> 'pgmq' or pgmq_there)
  )
  select
    coalesce(array_agg(l.object), '{}'),
    findings || coalesce(
      jsonb_agg(jsonb_build_object(
        'code', 'missing-privilege', 'count', 1, 'samples', jsonb_build_array(l.object), 'hint', l.remedy
      )),
      '[]'
    )
  into unreadable, findings
  from lacking l
  where l.remedy is not null;

  definitions_readable := pgflow_there and not unreadable && array['pgflow', 'pgflow.flows', 'pgflow.steps'];
  runtime_readable := definitions_readable and not unreadable && array['pgflow.runs', 'pgflow.step_tasks'];
  meta_readable := pgmq_there and not unreadable && array['pgmq', 'pgmq.meta'];

  if definitions_readable then

    -- Slugs, with or without runs ---------------------------------------------------------------------------

    with slug as (
      select f.flow_slug, null::text as step_slug, f.flow_slug as slug
      from pgflow.flows f
      union all
      select s.flow_slug, s.step_slug, s.step_slug
      from pgflow.steps s
    ),
    judged as (
      select
        s.*,
        left(s.slug, 1) = '_' as leading,
        right(s.slug, 1) = '_' as trailing,
        strpos(s.slug, '__') > 0 as doubled,
        s.slug collate "C" ~ old_slug_pattern and s.slug <> 'run' as valid
      from slug s
    )
    select findings || coalesce(jsonb_agg(f), '[]')
    into findings
    from (
      select
        c.code, j.flow_slug, j.step_slug, 1 as count, '{}'::text[] as samples,
        case
          when j.step_slug is null then format(
            'The slug %s. Once its runs have ended, rename the flow in code and database %s Where neither its '
            'runs nor its history are wanted any more, pgflow.delete_flow_and_data() deletes all of them, the '
            'flow and its queue.', c.complaint, as_renaming_a_flow)
          else format(
            'The slug %s. Once the flow''s runs have ended, rename the step in code and database %s',
            c.complaint, as_renaming_a_step)
        end as hint
      from judged j
      cross join lateral (
        values
          ('slug-leading-underscore', j.leading, 'begins with "_"'),
          ('slug-trailing-underscore', j.trailing, 'ends with "_"'),
          ('slug-double-underscore', j.doubled, 'contains "__"'),
          ('slug-invalid', not (j.valid or j.leading or j.trailing or j.doubled),
            'is not made of 1 to 128 letters, digits and "_" with no digit first, or is the word "run"')
      ) as c (code, applies, complaint)
      where c.applies
    ) f;

    -- Only ASCII letters have case here, so that the verdict does not depend on the locale.
    with slug as (
      select 'flow-slug-case-duplicate' as code, null::text as flow_slug, f.flow_slug as slug
      from pgflow.flows f
      union all
      select 'step-slug-case-duplicate', s.flow_slug, s.step_slug
      from pgflow.steps s
    ),
    shared as (
      select s.code, s.flow_slug, array_agg(s.slug order by s.slug collate "C") as members
      from slug s
      group by s.code, s.flow_slug, lower(s.slug collate "C")
      having count(*) > 1
    )
    select findings || coalesce(jsonb_agg(f), '[]')
    into findings
    from (
      select
        s.code,
        coalesce(s.flow_slug, m.slug) as flow_slug,
        case when s.flow_slug is not null then m.slug end as step_slug,
        cardinality(s.members) - 1 as count,
        (array_remove(s.members, m.slug))[1:sample_limit] as samples,
        case
          when s.flow_slug is null
            then 'The slug differs only in case from the samples, so that they share one queue. Rename all '
              'but one in code and database ' || as_renaming_a_flow
              || ' pgflow.delete_flow_and_data() would drop the queue of all.'
          else 'The slug differs only in case from the samples. Once the flow''s runs have ended, rename all '
            'but one in code and database ' || as_renaming_a_step
        end as hint
      from shared s
      cross join unnest(s.members) as m (slug)
    ) f;

    -- Queue names: pgflow stores lower(flow_slug), as PGMQ does ---------------------------------------------

    select findings || coalesce(jsonb_agg(f), '[]')
    into findings
    from (
      select
        'queue-name-invalid' as code, f.flow_slug, lower(f.flow_slug) as queue_name, 1 as count,
        '{}'::text[] as samples,
        case
          when length(f.flow_slug) > 47 then format(
            'A queue name has at most 47 characters, this one would have %s. Rename the flow in code and '
            'database %s', length(f.flow_slug), as_renaming_a_flow)
          else 'In this database''s locale, lower case makes something else than a-z of the slug''s letters. '
            'Rename the flow in code and database ' || as_renaming_a_flow
        end as hint
      -- Steps count as well: a restore without triggers does not check that their flow exists.
      from (select flow_slug from pgflow.flows union select flow_slug from pgflow.steps) f
      where f.flow_slug collate "C" ~ old_slug_pattern
        and lower(f.flow_slug) collate "C" !~ queue_name_pattern
    ) f;

    select coalesce(array_agg(q.name order by q.name collate "C"), '{}'),
      coalesce(array_agg(q.flow_slug order by q.name collate "C"), '{}')
    into queue_names, queue_flows
    from (
      select lower(f.flow_slug) as name, case when count(*) = 1 then min(f.flow_slug) end as flow_slug
      from pgflow.flows f
      where f.flow_slug collate "C" ~ old_slug_pattern
        and f.flow_slug <> 'run'
        and lower(f.flow_slug) collate "C" ~ queue_name_pattern
      group by lower(f.flow_slug)
    ) q;

    select count(*) into flow_count from pgflow.flows;

    select findings || coalesce(jsonb_agg(f), '[]'), coalesce(sum(f.count), 0)
    into findings, step_count
    from (
      select
        'backfill-steps' as code, s.flow_slug, lower(s.flow_slug) as queue_name, count(*) as count,
        '{}'::text[] as samples, 'The upgrade sets steps.queue_name.' as hint
      from pgflow.steps s
      group by s.flow_slug
    ) f;
  end if;

  -- Queue objects: catalogue and metadata only --------------------------------------------------------------

  if meta_readable then
    select coalesce(jsonb_agg(m), '[]')
    into metadata
    from (
      select q.name as queue_name, m.queue_name as spelling, m.is_partitioned, m.is_unlogged
      from pgmq.meta m
      join unnest(queue_names) as q (name) on q.name = lower(m.queue_name)
    ) m;
  end if;

  if pgmq_there then
    with queue as (
      select q.name as queue_name, q.flow_slug
      from unnest(queue_names, queue_flows) as q (name, flow_slug)
    ),
    meta as (
      select
        m.queue_name, count(*) as count, array_agg(m.spelling order by m.spelling collate "C") as spellings,
        bool_or(m.is_partitioned) as partitioned, bool_or(m.is_unlogged) as unlogged
      from jsonb_to_recordset(metadata)
        as m (queue_name text, spelling text, is_partitioned boolean, is_unlogged boolean)
      group by m.queue_name
    ),
    main_relation as (
      select q.queue_name, p.part, c.oid, c.relname, c.relkind, c.relpersistence, c.relispartition
      from queue q
      cross join (values ('queue', 'q_'), ('archive', 'a_')) as p (part, prefix)
      join pg_class c on c.relname = p.prefix || q.queue_name
      join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'pgmq'
    ),
    -- The sequence is found by its dependency on the identity column: PGMQ does not promise its name.
    relation as (
      select r.queue_name, r.part, r.oid, r.relname, r.relkind, r.relpersistence, r.relispartition
      from main_relation r
      union all
      select r.queue_name, 'sequence', c.oid, c.relname, c.relkind, c.relpersistence, c.relispartition
      from main_relation r
      join pg_attribute a on a.attrelid = r.oid and a.attname = 'msg_id' and not a.attisdropped
      join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid
        and d.refobjsubid = a.attnum and d.classid = 'pg_class'::regclass and d.deptype = 'i'
      join pg_class c on c.oid = d.objid and c.relkind = 'S'
      where r.part = 'queue'
    ),
    expected (part, name, definition) as (
      values
        ('queue', 'msg_id', 'bigint not null identity'),
        ('queue', 'read_ct', 'integer not null default'),
        ('queue', 'enqueued_at', 'timestamp with time zone not null default'),
        ('queue', 'vt', 'timestamp with time zone not null'),
        ('queue', 'message', 'jsonb'),
        ('queue', 'headers', 'jsonb'),
        ('archive', 'msg_id', 'bigint not null'),
        ('archive', 'read_ct', 'integer not null default'),
        ('archive', 'enqueued_at', 'timestamp with time zone not null default'),
        ('archive', 'archived_at', 'timestamp with time zone not null default'),
        ('archive', 'vt', 'timestamp with time zone not null'),
        ('archive', 'message', 'jsonb'),
        ('archive', 'headers', 'jsonb')
      union all
      -- PGMQ 1.10.0 brought it; in a queue made for another release, set_vt or read fail.
      select p.part, 'last_read_at', 'timestamp with time zone'
      from (values ('queue'), ('archive')) as p (part)
      where last_read_at_expected
    ),
    attribute as (
      select
        r.queue_name, r.part, r.relname, a.attname::text as name,
        concat_ws(' ',
          format_type(a.atttypid, a.atttypmod),
          case when a.attnotnull then 'not null' end,
          case when a.attidentity <> '' then 'identity' end,
          case when a.attgenerated <> '' then 'generated' when a.atthasdef then 'default' end
        ) as definition
      from relation r
      join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
      where r.relkind = 'r'
    ),
    indexed as (
      select r.queue_name, r.part, a.attname as name, i.indisprimary and i.indnkeyatts = 1 as is_primary_key
      from relation r
      join pg_index i on i.indrelid = r.oid and i.indisvalid and i.indpred is null
      join pg_attribute a on a.attrelid = r.oid and a.attnum = i.indkey[0]
    ),
    member as (
      select
        r.queue_name, r.relname, e.extname,
        case r.part when 'sequence' then 'sequence' else 'table' end as kind
      from relation r
      left join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = r.oid and d.objsubid = 0
        and d.refclassid = 'pg_extension'::regclass and d.deptype = 'e'
      left join pg_extension e on e.oid = d.refobjid
    ),
    membership as (
      select
        m.queue_name,
        array_agg(m.relname::text order by m.relname) filter (where m.extname = 'pgmq') as members,
        array_agg(m.relname::text order by m.relname) filter (where m.extname is null) as others,
        string_agg(
          format('alter extension pgmq drop %s pgmq.%I;', m.kind, m.relname), ' '
          order by m.kind desc, m.relname
        ) as detach
      from member m
      group by m.queue_name
    ),
    presence as (
      select r.queue_name, bool_or(r.part = 'queue') as has_queue, bool_or(r.part = 'archive') as has_archive
      from main_relation r
      group by r.queue_name
    ),
    defect (queue_name, reason) as (
      select r.queue_name, format('pgmq.%s is %s', r.relname, case r.relkind
        when 'p' then 'partitioned' when 'i' then 'an index' when 'I' then 'an index' when 'v' then 'a view'
        when 'm' then 'a materialized view' when 'S' then 'a sequence' when 'f' then 'a foreign table'
        else 'not a table' end)
      from relation r
      where r.part <> 'sequence' and r.relkind <> 'r'
      union all
      select r.queue_name, format('pgmq.%s is unlogged', r.relname)
      from relation r
      where r.relpersistence = 'u'
      union all
      select r.queue_name, format('pgmq.%s inherits or is inherited from', r.relname)
      from relation r
      where r.relkind = 'r' and exists (select from pg_inherits i where r.oid in (i.inhrelid, i.inhparent))
      union all
      select r.queue_name, format('pgmq.%s lacks column %s (%s)', r.relname, e.name, e.definition)
      from relation r
      join expected e on e.part = r.part
      where r.relkind = 'r'
        and not exists (
          select from attribute a where a.queue_name = r.queue_name and a.part = r.part and a.name = e.name
        )
      union all
      select
        a.queue_name, format('pgmq.%s.%s is %s, not %s', a.relname, a.name, a.definition, e.definition)
      from attribute a
      join expected e on e.part = a.part and e.name = a.name
      where a.definition <> e.definition
      union all
      select a.queue_name, format('pgmq.%s has an extra column %I', a.relname, a.name)
      from attribute a
      where not exists (select from expected e where e.part = a.part and e.name = a.name)
      union all
      select r.queue_name, format('pgmq.%s.msg_id does not own its sequence', r.relname)
      from relation r
      where r.part = 'queue' and r.relkind = 'r'
        and not exists (select from relation s where s.queue_name = r.queue_name and s.part = 'sequence')
      union all
      select r.queue_name, format('pgmq.%s has no primary key on msg_id', r.relname)
      from relation r
      where r.relkind = 'r'
        and not exists (
          select from indexed i
          where i.queue_name = r.queue_name and i.part = r.part and i.name = 'msg_id' and i.is_primary_key
        )
      union all
      select r.queue_name, format('pgmq.%s has no valid index on %s', r.relname, w.name)
      from relation r
      join (values ('queue', 'vt'), ('archive', 'archived_at')) as w (part, name) on w.part = r.part
      where r.relkind = 'r'
        and not exists (
          select from indexed i where i.queue_name = r.queue_name and i.part = r.part and i.name = w.name
        )
      union all
      select m.queue_name, 'pgmq.meta says partitioned' from meta m where m.partitioned
      union all
      select m.queue_name, 'pgmq.meta says unlogged' from meta m where m.unlogged
      union all
      select m.queue_name, format('extension pgmq owns %s but not %s',
        array_to_string(m.members, ', '), array_to_string(m.others, ', '))
      from membership m
      where m.members is not null and m.others is not null
      union all
      select m.queue_name, format('extension %s owns pgmq.%s', m.extname, m.relname)
      from member m
      where m.extname <> 'pgmq'
    ),
    malformed as (
      select d.queue_name, count(*) as count, array_agg(d.reason order by d.reason collate "C") as reasons
      from defect d
      group by d.queue_name
    ),
    summary as (
      select
        q.queue_name, q.flow_slug,
        coalesce(p.has_queue, false) as has_queue, coalesce(p.has_archive, false) as has_archive,
        m.count as spelling_count, m.spellings, d.count as defect_count, d.reasons,
        e.members, e.others, e.detach
      from queue q
      left join presence p on p.queue_name = q.queue_name
      left join meta m on m.queue_name = q.queue_name
      left join malformed d on d.queue_name = q.queue_name
      left join membership e on e.queue_name = q.queue_name
    )
    select findings || coalesce(jsonb_agg(f), '[]')
    into findings
    from (
      select
        'queue-absent' as code, s.flow_slug, s.queue_name, 1::bigint as count, '{}'::text[] as samples,
        format('Create the queue, and move its sequence above the ids that tasks have: select pgmq.create(%L); ',
          coalesce(s.flow_slug, s.queue_name))
        || format(after_creation, format('pgmq.%I', 'q_' || s.queue_name), s.queue_name) as hint
      from summary s
      where meta_readable and s.spelling_count is null and not s.has_queue and not s.has_archive
      union all
      select
        'queue-metadata-missing', s.flow_slug, s.queue_name, 1, '{}',
        format('If these tables are the flow''s, register them: select pgmq.create(%L);',
          coalesce(s.flow_slug, s.queue_name))
      from summary s
      where meta_readable and s.spelling_count is null and (s.has_queue or s.has_archive)
      union all
      select
        'queue-metadata-ambiguous', s.flow_slug, s.queue_name, s.spelling_count, s.spellings[1:sample_limit],
        'These spellings are one pair of tables. Delete all but one of the rows from pgmq.meta.'
      from summary s
      where s.spelling_count > 1
      union all
      select
        'queue-incomplete', s.flow_slug, s.queue_name, cardinality(p.missing), p.missing,
        format('Create what is missing: select pgmq.create(%L);',
          coalesce(s.spellings[1], s.flow_slug, s.queue_name))
        || case
          when s.has_queue then ''
          else ' ' || format(after_creation, format('pgmq.%I', 'q_' || s.queue_name), s.queue_name)
        end
      from summary s
      cross join lateral (
        select array_remove(array[
          case when not s.has_archive then 'pgmq.a_' || s.queue_name end,
          case when not s.has_queue then 'pgmq.q_' || s.queue_name end
        ], null)
      ) as p (missing)
      where cardinality(p.missing) > 0 and (s.has_queue or s.has_archive or s.spelling_count > 0)
      union all
      select
        'queue-malformed', s.flow_slug, s.queue_name, s.defect_count, s.reasons[1:sample_limit],
        'Each sample is one difference from what pgmq.create() makes. Undo them.'
      from summary s
      where s.defect_count > 0
      union all
      select
        'queue-extension-membership', s.flow_slug, s.queue_name, cardinality(s.members), s.members,
        'Until this is done pgmq.drop_queue() fails: ' || s.detach
      from summary s
      where pgmq_detaches_queues and s.members is not null and s.others is null
    ) f;
  end if;

  -- Tasks ---------------------------------------------------------------------------------------------------

  if runtime_readable then
    -- One pass. What is rare is looked up afterwards, where there is any.
    select coalesce(jsonb_agg(t), '[]'), coalesce(sum(t.tasks), 0), coalesce(sum(t.without_message), 0),
      coalesce(sum(t.in_other_flow), 0)
    into task_totals, task_count, without_message_count, in_other_flow_count
    from (
      select
        t.flow_slug,
        count(*) as tasks,
        count(*) filter (where t.message_id is null) as without_message,
        max(t.message_id) filter (where r.flow_slug = t.flow_slug) as highest_message,
        count(*) filter (where r.flow_slug is distinct from t.flow_slug) as in_other_flow
      from pgflow.step_tasks t
      -- Of an existing flow: a restore without triggers checks no foreign key.
      left join (select r.* from pgflow.runs r join pgflow.flows f on f.flow_slug = r.flow_slug) r
        on r.run_id = t.run_id
      group by t.flow_slug
    ) t;

    select findings || coalesce(jsonb_agg(f), '[]')
    into findings
    from (
      select
        'backfill-tasks' as code, t.flow_slug, lower(t.flow_slug) as queue_name, t.tasks as count,
        '{}'::text[] as samples, 'The upgrade sets step_tasks.queue_name.' as hint
      from jsonb_to_recordset(task_totals) as t (flow_slug text, tasks bigint)
    ) f;

    if without_message_count > 0 then
      select findings || coalesce(jsonb_agg(f), '[]')
      into findings
      from (
        select
          'null-message-id' as code, t.flow_slug, lower(t.flow_slug) as queue_name,
          t.without_message as count,
          array_agg(concat_ws('/', n.run_id, n.step_slug, n.task_index) order by n.number) as samples,
          'These tasks have no message. They get their queue name like all others.' as hint
        from (
          select
            s.flow_slug, s.run_id, s.step_slug, s.task_index,
            row_number() over (
              partition by s.flow_slug order by s.run_id, s.step_slug collate "C", s.task_index
            ) as number
          from pgflow.step_tasks s
          where s.message_id is null
        ) n
        join jsonb_to_recordset(task_totals) as t (flow_slug text, without_message bigint)
          on t.flow_slug = n.flow_slug
        where n.number <= sample_limit
        group by t.flow_slug, t.without_message
      ) f;
    end if;

    if in_other_flow_count > 0 then
      select findings || coalesce(jsonb_agg(f), '[]')
      into findings
      from (
        select
          'task-flow-mismatch' as code, t.flow_slug, t.in_other_flow as count,
          array_agg(concat_ws('/', n.run_id, n.step_slug, n.task_index) order by n.number) as samples,
          'These tasks name this flow, their runs another, or it does not exist. Find out which is right, '
            'and correct the other.'
            as hint
        from (
          select
            s.flow_slug, s.run_id, s.step_slug, s.task_index,
            row_number() over (
              partition by s.flow_slug order by s.run_id, s.step_slug collate "C", s.task_index
            ) as number
          from pgflow.step_tasks s
          left join (select r.* from pgflow.runs r join pgflow.flows f on f.flow_slug = r.flow_slug) r
            on r.run_id = s.run_id
          where r.flow_slug is distinct from s.flow_slug
        ) n
        join jsonb_to_recordset(task_totals) as t (flow_slug text, in_other_flow bigint)
          on t.flow_slug = n.flow_slug
        where n.number <= sample_limit
        group by t.flow_slug, t.in_other_flow
      ) f;
    end if;

    -- Numbers instead of names, and lower() once a flow: the groups are as many as the tasks.
    with queue as (
      select
        f.flow_slug, lower(f.flow_slug) as name,
        dense_rank() over (order by lower(f.flow_slug)) as number
      from pgflow.flows f
    ),
    duplicate as (
      select q.number, t.message_id
      from pgflow.step_tasks t
      join queue q on q.flow_slug = t.flow_slug
      where t.message_id is not null
      group by q.number, t.message_id
      having count(*) > 1
    )
    select findings || coalesce(jsonb_agg(f), '[]')
    into findings
    from (
      select
        'duplicate-queue-message' as code,
        n.flow_slug, n.name as queue_name, d.count,
        array(select format('%s/%s', n.name, i.id) from unnest(d.message_ids) as i (id)) as samples,
        'Several tasks name one message. Keep it on the task that the message''s body names; set message_id '
          'to null on the others, if they have ended.' as hint
      from (
        select i.number, count(*) as count,
          (array_agg(i.message_id order by i.message_id))[1:sample_limit] as message_ids
        from duplicate i
        group by i.number
      ) d
      join (
        select q.number, min(q.name) as name, case when count(*) = 1 then min(q.flow_slug) end as flow_slug
        from queue q
        group by q.number
      ) n on n.number = d.number
    ) f;
  end if;

  -- Sequences: a queue that was dropped and made again hands out ids that tasks have had -------------------

  if runtime_readable and meta_readable then
    with total as (
      select lower(t.flow_slug) as queue_name, max(t.highest_message) as highest_message
      from jsonb_to_recordset(task_totals) as t (flow_slug text, highest_message bigint)
      group by lower(t.flow_slug)
    ),
    counter as (
      select
        q.name as queue_name, q.flow_slug, c.relname, t.highest_message,
        has_sequence_privilege(c.oid, 'select') as readable
      from unnest(queue_names, queue_flows) as q (name, flow_slug)
      join total t on t.queue_name = q.name and t.highest_message > 0
      join pg_class r on r.relname = 'q_' || q.name
      join pg_namespace n on n.oid = r.relnamespace and n.nspname = 'pgmq'
      join pg_attribute a on a.attrelid = r.oid and a.attname = 'msg_id' and not a.attisdropped
      join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid
        and d.refobjsubid = a.attnum and d.classid = 'pg_class'::regclass and d.deptype = 'i'
      join pg_class c on c.oid = d.objid and c.relkind = 'S' and c.relnamespace = n.oid
    )
    select
      coalesce(jsonb_agg(c) filter (where c.readable), '[]'),
      findings || coalesce(
        jsonb_agg(jsonb_build_object(
          'code', 'missing-privilege', 'flow_slug', c.flow_slug, 'queue_name', c.queue_name, 'count', 1,
          'samples', jsonb_build_array('pgmq.' || c.relname),
          'hint', format('grant select on sequence pgmq.%I to %I;', c.relname, current_user)
        )) filter (where not c.readable),
        '[]'
      )
    into counters, findings
    from counter c;

    for first_queue in 1 .. jsonb_array_length(counters) by queues_per_query loop
      select string_agg(
        format(
          'select %L as queue_name, %L as flow_slug, %L as relname, %s::bigint as highest_message, '
          'last_value - case when is_called then 0 else 1 end as last_message from pgmq.%I',
          c.queue_name, c.flow_slug, c.relname, c.highest_message, c.relname
        ), ' union all '
      )
      into counters_sql
      from jsonb_array_elements(counters) with ordinality as e (counter, number)
      cross join jsonb_to_record(e.counter)
        as c (queue_name text, flow_slug text, relname text, highest_message bigint)
      where e.number between first_queue and first_queue + queues_per_query - 1;

      begin
        execute format($query$
          select jsonb_agg(f)
          from (
            select
              'queue-sequence-behind' as code, c.flow_slug, c.queue_name, 1 as count,
              array[format('next msg_id %%s, highest message_id %%s', c.last_message + 1, c.highest_message)]
                as samples,
              format(
                'Messages to come would repeat ids of tasks. Move the sequence: select setval(%%L, %%s);',
                format('pgmq.%%I', c.relname), c.highest_message
              ) as hint
            from (%s) c
            where c.last_message < c.highest_message
          ) f
          $query$, counters_sql)
        into batch_findings;

        -- As below: leaving by an exception gives the locks back.
        raise exception using errcode = 'PF000';
      exception
        when sqlstate 'PF000' then
          findings := findings || coalesce(batch_findings, '[]');
      end;
    end loop;
  end if;

  -- Messages ------------------------------------------------------------------------------------------------

  if pgmq_there then
    -- A queue is read if it is a table with the two columns; how else it is malformed has been said above.
    with queue as (
      select q.name as queue_name, q.flow_slug, c.oid, c.relname
      from unnest(queue_names, queue_flows) as q (name, flow_slug)
      join pg_class c on c.relname = 'q_' || q.name and c.relkind in ('r', 'p')
      join pg_namespace n on n.oid = c.relnamespace and n.nspname = 'pgmq'
      where (
        select count(*)
        from pg_attribute a
        where a.attrelid = c.oid and not a.attisdropped
          and (a.attname, a.atttypid) in (('msg_id', 'bigint'::regtype), ('message', 'jsonb'::regtype))
      ) = 2
    ),
    checked as (
      select
        q.*,
        case
          when not has_table_privilege(q.oid, 'select')
            then format('grant select on pgmq.%I to %I;', q.relname, current_user)
          when row_security_active(q.oid)
            then format('Row security hides rows from %I: run as a role with bypassrls or, unless it is forced, '
              'as the owner.', current_user)
        end as remedy
      from queue q
    )
    select
      coalesce(
        array_agg(c.queue_name order by c.queue_name collate "C") filter (where c.remedy is null), '{}'
      ),
      findings || coalesce(
        jsonb_agg(jsonb_build_object(
          'code', 'missing-privilege', 'flow_slug', c.flow_slug, 'queue_name', c.queue_name, 'count', 1,
          'samples', jsonb_build_array('pgmq.' || c.relname), 'hint', c.remedy
        )) filter (where c.remedy is not null),
        '[]'
      )
    into readable_queues, findings
    from checked c;

    if not runtime_readable or 'pgmq' = any (unreadable) then
      readable_queues := '{}';
    end if;

    for first_queue in 1 .. cardinality(readable_queues) by queues_per_query loop
      batch_queues := readable_queues[first_queue : first_queue + queues_per_query - 1];

      select string_agg(
        format('select %s as queue, msg_id, message from pgmq.%I', q.number, 'q_' || q.name), ' union all '
      )
      into messages_sql
      from unnest(batch_queues) with ordinality as q (name, number);

      begin
        execute format('select count(*), array_agg(distinct m.msg_id) from (%s) as m', messages_sql)
        into batch_message_count, batch_message_ids;

        -- $1: this batch's queues; $2: sample_limit; $3: the ids just found, which spare most tasks the join.
        execute format($query$
          with queue as (
            select f.flow_slug, q.name, q.number::integer as number
            from unnest($1) with ordinality as q (name, number)
            join pgflow.flows f on lower(f.flow_slug) = q.name
          ),
          message as (%s),
          owner as (
            select q.number as queue, t.message_id, t.flow_slug, t.run_id, t.step_slug, t.task_index
            from pgflow.step_tasks t
            join queue q on q.flow_slug = t.flow_slug
            where t.message_id = any ($3)
          ),
          -- @> is false for whatever is not an object with these four values, and null for no body.
          judged as (
            select
              m.queue, m.msg_id,
              bool_or(o.message_id is not null) as owned,
              bool_or(coalesce(m.message @> jsonb_build_object('flow_slug', o.flow_slug, 'run_id', o.run_id,
                'step_slug', o.step_slug, 'task_index', o.task_index), false)) as addressed,
              min(case when o.message_id is null then m.message ->> 'flow_slug' end) as named_flow
            from message m
            left join owner o on o.queue = m.queue and o.message_id = m.msg_id
            group by m.queue, m.msg_id
          ),
          problem as (
            select
              j.queue, k.code, count(*) as count,
              (array_agg(j.msg_id order by j.msg_id))[1:$2] as msg_ids,
              (array_agg(distinct f.flow_slug order by f.flow_slug))[1:5] as other_flows
            from judged j
            left join pgflow.flows f on f.flow_slug = j.named_flow and lower(f.flow_slug) <> ($1)[j.queue]
            cross join lateral (
              select case
                when j.owned then 'message-body-mismatch'
                when f.flow_slug is not null then 'queue-referenced-by-other-flow'
                else 'message-without-task'
              end as code
            ) k
            where not (j.owned and j.addressed)
            group by j.queue, k.code
          ),
          named as (
            select
              q.number, min(q.name) as name,
              case when count(*) = 1 then min(q.flow_slug) end as flow_slug
            from queue q
            group by q.number
          )
          select jsonb_agg(f)
          from (
            select
              p.code, n.flow_slug, n.name as queue_name, p.count,
              array(select format('%%s/%%s', n.name, i.id) from unnest(p.msg_ids) as i (id)) as samples,
              case p.code
                when 'queue-referenced-by-other-flow' then format(
                  'These messages name another flow (%%s). Move them where they belong, or archive them: '
                  'select pgmq.archive(%%L, array[%%s]::bigint[]);%%s',
                  array_to_string(p.other_flows, ', '), n.name, array_to_string(p.msg_ids, ', '), l.left_over)
                when 'message-without-task' then format(
                  'No task has these messages. Nobody but pgflow may send into a flow''s queue. Archive '
                  'them: select pgmq.archive(%%L, array[%%s]::bigint[]);%%s',
                  n.name, array_to_string(p.msg_ids, ', '), l.left_over)
                else
                  'By their id these messages belong to a task, in their body they name none or another. '
                  'Find out which is right, and correct the other.'
              end as hint
            from problem p
            join named n on n.number = p.queue
            cross join lateral (
              select case when p.count > cardinality(p.msg_ids)
                then format(' These are the first %%s: audit again afterwards.', cardinality(p.msg_ids)) else '' end
            ) l (left_over)
          ) f
          $query$, messages_sql)
        into batch_findings
        using batch_queues, sample_limit, batch_message_ids;

        -- Leaving by an exception gives this batch's locks back: those of thousands of queues would exhaust
        -- the server's lock table.
        raise exception using errcode = 'PF000';
      exception
        when sqlstate 'PF000' then
          message_count := message_count + batch_message_count;
          findings := findings || coalesce(batch_findings, '[]');
      end;
    end loop;
  end if;

  -- The optional pruning helper -----------------------------------------------------------------------------

  with helper as (
    select
      format('pgflow.prune_data_older_than(%s)', oidvectortypes(p.proargtypes)) as signature,
      oidvectortypes(p.proargtypes) = 'interval' and p.prorettype = 'void'::regtype and l.lanname = 'plpgsql'
        and p.prokind = 'f' and p.provolatile = 'v' and not p.prosecdef and p.proconfig is null
        and (
          md5(p.prosrc) = any (stock_prune_md5s)
          or md5(regexp_replace(
            regexp_replace(lower(p.prosrc collate "C"), '--[^' || chr(10) || ']*', '', 'g'),
            '[[:space:]]', '', 'g'
          )) = any (stock_prune_md5s)
        ) as stock
    from pg_proc p
    join pg_namespace n on n.oid = p.pronamespace
    join pg_language l on l.oid = p.prolang
    where n.nspname = 'pgflow' and p.proname = 'prune_data_older_than' and pgflow_there
  )
  select findings || coalesce(jsonb_agg(f), '[]')
  into findings
  from (
    select
      case when h.stock then 'prune-helper-stock' else 'prune-helper-customised' end as code,
      1 as count, array[h.signature] as samples,
      case
        when h.stock then 'The upgrade leaves it alone, and it works while every flow uses its default queue. '
          'Replace it after the upgrade: pgflow-migrate prune-helper --sql prints its replacement.'
        else 'It is not the documented definition, and the upgrade leaves it alone. Adapt it to queue names by '
          'hand: pgflow-migrate prune-helper says how.'
      end as hint
    from helper h
    union all
    select 'prune-helper-absent', 0, '{}', 'pgflow.prune_data_older_than() is not installed: nothing to do.'
    where pgflow_there and not exists (select from helper)
  ) f;

  -- The report ----------------------------------------------------------------------------------------------

  perform set_config('quote_all_identifiers', caller_quoting, true);
  perform set_config('jit', caller_jit, true);
  perform set_config('enable_nestloop', caller_nestloop, true);
  perform set_config('work_mem', caller_work_mem, true);

  open findings_cursor for
    with kind (code, severity) as (
      values
        ('slug-leading-underscore', 'error'),
        ('slug-trailing-underscore', 'error'),
        ('slug-double-underscore', 'error'),
        ('slug-invalid', 'error'),
        ('flow-slug-case-duplicate', 'error'),
        ('step-slug-case-duplicate', 'error'),
        ('queue-name-invalid', 'error'),
        ('queue-absent', 'error'),
        ('queue-metadata-missing', 'error'),
        ('queue-metadata-ambiguous', 'error'),
        ('queue-incomplete', 'error'),
        ('queue-malformed', 'error'),
        ('queue-sequence-behind', 'error'),
        ('queue-referenced-by-other-flow', 'error'),
        ('message-without-task', 'error'),
        ('message-body-mismatch', 'error'),
        ('duplicate-queue-message', 'error'),
        ('task-flow-mismatch', 'error'),
        ('pgmq-absent', 'error'),
        ('release-unexpected', 'error'),
        ('missing-privilege', 'error'),
        ('queue-extension-membership', 'warning'),
        ('row-type-in-function', 'warning'),
        ('prune-helper-stock', 'warning'),
        ('prune-helper-customised', 'warning'),
        ('already-upgraded', 'info'),
        ('prune-helper-absent', 'info'),
        ('backfill-steps', 'info'),
        ('backfill-tasks', 'info'),
        ('null-message-id', 'info')
    ),
    finding as (
      select k.severity, f.code, f.flow_slug, f.step_slug, f.queue_name, f.count, f.samples, f.hint
      from jsonb_to_recordset(findings) as f (
        code text, flow_slug text, step_slug text, queue_name text, count bigint, samples text[], hint text
      )
      join kind k on k.code = f.code
      union all
      select
        'info', 'point-in-time', null, null, null, cardinality(t.facts), t.facts,
        case
          when already_upgraded then 'A point-in-time report.'
          else 'A point-in-time report, not an authorisation: the upgrade checks all of this again under its '
            'locks.'
        end
      from (
        -- What was not read is left out: it is not zero.
        select array_remove(array[
          counted[1] || ', ' || counted[2],
          format('taken at %s', to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')),
          format('pgflow %s, PostgreSQL %s', release, split_part(current_setting('server_version'), ' ', 1)),
          case when definitions_readable then concat_ws(', ',
            counted[3], counted[4], case when runtime_readable then counted[5] end) end,
          case when runtime_readable and pgmq_there then counted[6] || ' in ' || counted[7] end
        ], null) as facts
        from (
          select array_agg(
            format('%s %s%s', n.number, n.thing, case when n.number = 1 then '' else 's' end) order by n.place
          ) as counted
          from (
            select 1 as place, 'error' as thing, count(*) filter (where k.severity = 'error') as number
            from jsonb_to_recordset(findings) as f (code text)
            join kind k on k.code = f.code
            union all
            select 2, 'warning', count(*) filter (where k.severity = 'warning')
            from jsonb_to_recordset(findings) as f (code text)
            join kind k on k.code = f.code
            union all
            values
              (3, 'flow', flow_count), (4, 'step', step_count), (5, 'task', task_count),
              (6, 'message', message_count),
              (7, 'queue', cardinality(readable_queues))
          ) n
        ) c
      ) t
    )
    select f.severity, f.code, f.flow_slug, f.step_slug, f.queue_name, f.count, f.samples, f.hint
    from finding f
    order by
      f.code = 'point-in-time',
      array_position(array['error', 'warning', 'info'], f.severity),
      f.code collate "C",
      f.flow_slug collate "C" nulls first,
      f.step_slug collate "C" nulls first,
      f.queue_name collate "C" nulls first,
      f.samples;

  perform pg_catalog.set_config('search_path', caller_search_path, true);
end;
$findings$;
