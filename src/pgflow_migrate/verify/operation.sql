-- What the runtime keeps to between transactions, as rows of the cursor pgflow_migrate_violations; columns and rights
-- as in the revision's invariants.sql, and SELECT on the queues' archives and sequences.
--
-- The upgrade does not run this: it neither causes nor cures any of it, and the audit lets a lost message pass.
-- Live is a task that a worker may still claim or has claimed: queued or started, its run and step running, not given
-- up by recovery. Tasks without a message id are left out: they never had, or no longer have, a message to lose. A
-- message of a task that is over is no violation: whoever reads it archives it. An archived message may be deleted.
do $operation$
declare
  sample_limit constant integer := 20;
  caller_search_path constant text := pg_catalog.current_setting('search_path');
  caller_work_mem constant text := pg_catalog.current_setting('work_mem');
  caller_jit constant text := pg_catalog.current_setting('jit');
  caller_nestloop constant text := pg_catalog.current_setting('enable_nestloop');
  caller_quoting constant text := pg_catalog.current_setting('quote_all_identifiers');

  violations jsonb := '[]';
  queue record;
  highest_id bigint;
  last_id bigint;
  lost_count bigint;
  lost_tasks text[];
  archived_count bigint;
  archived_tasks text[];
  violations_cursor refcursor := 'pgflow_migrate_violations';
begin
  perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
  perform set_config('quote_all_identifiers', 'off', true);
  perform set_config('jit', 'off', true);
  -- As in invariants.sql: hashing is never the bad choice.
  perform set_config('enable_nestloop', 'off', true);
  if pg_size_bytes(caller_work_mem) < pg_size_bytes('64MB') then
    perform set_config('work_mem', '64MB', true);
  end if;

  select violations || coalesce(jsonb_agg(v order by v.subject collate "C"), '[]')
  into violations
  from (
    select
      'task-flow' as "check", 'flow ' || n.flow_slug as subject, max(n.count) as count,
      array_agg(n.task order by n.number) as samples,
      'These tasks name this flow, their runs another. Find out which is right, and correct the other.' as hint
    from (
      select
        t.flow_slug, concat_ws('/', t.run_id, t.step_slug, t.task_index) as task,
        count(*) over (partition by t.flow_slug) as count,
        row_number() over (
          partition by t.flow_slug order by t.run_id, t.step_slug collate "C", t.task_index
        ) as number
      from pgflow.step_tasks t
      join pgflow.runs r on r.run_id = t.run_id
      where r.flow_slug <> t.flow_slug
    ) n
    where n.number <= sample_limit
    group by n.flow_slug
  ) v;

  -- A statement for each queue that looks up ids in indexes: one statement over all would read whole archives.
  for queue in
    with live as (
      select
        t.queue_name, array_agg(t.message_id order by t.run_id, t.step_slug collate "C", t.task_index) as ids,
        array_agg(concat_ws('/', t.run_id, t.step_slug, t.task_index)
          order by t.run_id, t.step_slug collate "C", t.task_index) as tasks
      from pgflow.step_tasks t
      join pgflow.runs r on r.run_id = t.run_id and r.status = 'started'
      join pgflow.step_states s
        on s.run_id = t.run_id and s.step_slug = t.step_slug and s.status = 'started'
      where (t.status = 'queued' or t.status = 'started')
        and t.permanently_stalled_at is null
        and t.message_id is not null
      group by t.queue_name
    ),
    relation as (
      select c.oid, c.relname
      from pg_class c
      join pg_namespace n on n.oid = c.relnamespace
      join pg_attribute a
        on a.attrelid = c.oid and a.attname = 'msg_id' and a.atttypid = 'bigint'::regtype and not a.attisdropped
      where n.nspname = 'pgmq' and c.relkind = 'r'
    ),
    -- The sequence is found by its dependency on the identity column: PGMQ does not promise its name.
    sequence as (
      select d.refobjid as oid, c.relname
      from pg_depend d
      join pg_class c on c.oid = d.objid and c.relkind = 'S'
      join pg_attribute k on k.attrelid = d.refobjid and k.attnum = d.refobjsubid and k.attname = 'msg_id'
      where d.refclassid = 'pg_class'::regclass and d.classid = 'pg_class'::regclass and d.deptype = 'i'
    )
    select
      q.name, m.relname as messages, a.relname as archive, i.relname as sequence,
      coalesce(l.ids, '{}') as ids, coalesce(l.tasks, '{}') as tasks
    from (select distinct s.queue_name as name from pgflow.steps s where s.queue_name is not null) q
    -- A queue or archive that is missing is told by invariants.sql.
    join relation m on m.relname = 'q_' || q.name
    left join relation a on a.relname = 'a_' || q.name
    left join live l on l.queue_name = q.name
    left join sequence i on i.oid = m.oid
    order by q.name collate "C"
  loop
    begin
      lost_count := 0;
      archived_count := 0;
      if cardinality(queue.ids) > 0 then
        -- "offset 0" keeps these from becoming joins that read the archive as a whole.
        execute format($query$
          select
            count(*) filter (where l.lost),
            (array_agg(l.task order by l.number) filter (where l.lost))[1:$3],
            count(*) filter (where l.archived),
            (array_agg(l.task order by l.number) filter (where l.archived))[1:$3]
          from (
            select
              t.task, t.number, k.archived,
              not k.archived and not exists (select from pgmq.%I m where m.msg_id = t.id offset 0) as lost
            from unnest($1, $2) with ordinality as t (id, task, number)
            cross join lateral (select %s as archived) k
          ) l
          $query$,
          queue.messages,
          case
            when queue.archive is null then 'false'
            else format('exists (select from pgmq.%I a where a.msg_id = t.id offset 0)', queue.archive)
          end)
        into lost_count, lost_tasks, archived_count, archived_tasks
        using queue.ids, queue.tasks, sample_limit;
      end if;

      -- Sequences have no snapshot: what is read now is at least what the tasks of the snapshot were numbered with.
      last_id := null;
      if queue.sequence is not null then
        execute format(
          'select last_value - case when is_called then 0 else 1 end from pgmq.%I', queue.sequence
        )
        into last_id;
      end if;
      select max(t.message_id) into highest_id from pgflow.step_tasks t where t.queue_name = queue.name;

      -- Leaving by an exception gives this queue's locks back: those of thousands of queues would exhaust the
      -- server's lock table.
      raise exception using errcode = 'PF000';
    exception
      when sqlstate 'PF000' then
        if lost_count > 0 then
          violations := violations || jsonb_build_object(
            'check', 'live-task-message', 'subject', 'queue ' || queue.name, 'count', lost_count,
            'samples', lost_tasks,
            'hint', 'The messages of these tasks are neither in the queue nor in its archive: no worker will ever claim '
              'them. Restore the messages, or start the runs anew.'
          );
        end if;
        if archived_count > 0 then
          violations := violations || jsonb_build_object(
            'check', 'live-task-archived', 'subject', 'queue ' || queue.name, 'count', archived_count,
            'samples', archived_tasks,
            'hint', 'These tasks are not over, but their messages are in the archive. Move back what the queue lacks, '
              'with its id; delete from the archive what the queue has.'
          );
        end if;
        if last_id < highest_id then
          violations := violations || jsonb_build_object(
            'check', 'queue-sequence', 'subject', 'queue ' || queue.name, 'count', 1,
            'samples', array[format('next msg_id %s, highest message_id %s', last_id + 1, highest_id)],
            'hint', format('Messages to come would repeat ids of tasks, and starting steps would fail (23505). Move '
              'the sequence: select setval(%L, %s);', format('pgmq.%I', queue.sequence), highest_id)
          );
        end if;
    end;
  end loop;

  perform set_config('enable_nestloop', caller_nestloop, true);
  perform set_config('jit', caller_jit, true);
  perform set_config('work_mem', caller_work_mem, true);
  perform set_config('quote_all_identifiers', caller_quoting, true);

  open violations_cursor no scroll for
    select v."check", v.subject, v.count, v.samples, v.hint
    from rows from (
      jsonb_to_recordset(violations) as ("check" text, subject text, count bigint, samples text[], hint text)
    ) with ordinality as v ("check", subject, count, samples, hint, place)
    order by array_position(array['task-flow', 'live-task-message', 'live-task-archived', 'queue-sequence'], v."check"),
      v.place;

  perform pg_catalog.set_config('search_path', caller_search_path, true);
end;
$operation$;
