-- The fence: from here to the end of the transaction nobody else writes what the preflight is about to judge.
--
-- Order, and the mode from the start (a lock is never upgraded):
--   1. the advisory lock of pgflow-migrate                     one upgrade at a time
--   2. pgflow.runs, step_states, step_tasks                    ACCESS EXCLUSIVE: producers, workers, recovery, pruning
--   3. pgflow.flows, steps, deps                               ACCESS EXCLUSIVE: definitions, compilation, deletion
--      pgflow.worker_functions                                 ACCESS EXCLUSIVE: registration and restart of workers
--   4. pgmq.meta                                               SHARE: creating and dropping queues
--   5. the queue table of every flow, in name order            SHARE: sends and archives past pgflow
--
-- Only the first table of a try is waited for with lock_timeout. From the moment that we ask for it others may queue
-- behind us, so all further waits of the try together end within half of deadlock_timeout from there; what is not free
-- after that is asked for with NOWAIT. So nobody who waits directly for us becomes a deadlock victim by it: our own
-- wait is over before its deadlock check begins. On failure the subtransaction gives all locks back, and the next try
-- asks first for the table that was busy: what holds it is waited out, and an autovacuum, which gives way only to
-- waits longer than deadlock_timeout, ends. The budget for all tries is max_wait.
-- Settings, both transaction-local, set by the caller: pgflow_migrate.lock_timeout (5s), pgflow_migrate.max_wait
-- (lock_timeout). A second revision of the same transaction that comes here finds the fence standing
-- (pgflow_migrate.fence): to try again would be to wait with locks in hand.
do $fence$
declare
  full_timeout constant text := coalesce(nullif(current_setting('pgflow_migrate.lock_timeout', true), ''), '5s');
  budget constant interval := coalesce(nullif(current_setting('pgflow_migrate.max_wait', true), ''), full_timeout);
  give_up_at constant timestamptz := clock_timestamp() + budget;
  brief constant interval := current_setting('deadlock_timeout')::interval / 2;
  pgflow_tables constant text[] := array[
    'pgflow.runs', 'pgflow.step_states', 'pgflow.step_tasks', 'pgflow.flows', 'pgflow.steps', 'pgflow.deps',
    'pgflow.worker_functions'
  ];
  tables text[];
  busy text;  -- the table that the last try failed on
  target text;
  mode text;
  old_snapshots text;
  asked_at timestamptz;
  left_ms integer;
begin
  if coalesce(current_setting('pgflow_migrate.fence', true), '') = 'stands' then
    return;
  end if;
  perform set_config('lock_timeout', full_timeout, true);
  perform pg_advisory_xact_lock(hashtextextended('pgflow-migrate', 0));

  loop
    begin
      asked_at := null;
      tables := array_remove(array[busy], null) || array_remove(pgflow_tables, busy);

      for stage in 1 .. 2 loop
        if stage = 2 then
          -- Only now that the flows are locked it is sure which queues there are. Without PGMQ there is nothing to
          -- lock; the preflight reports it.
          select array_agg(format('pgmq.%I', c.relname) order by c.relname <> 'meta', c.relname collate "C")
          into tables
          from pg_catalog.pg_class c
          join pg_catalog.pg_namespace n on n.oid = c.relnamespace
          where n.nspname = 'pgmq'
            and c.relkind in ('r', 'p')
            and (c.relname = 'meta' or c.relname in (select 'q_' || lower(f.flow_slug) from pgflow.flows f));
        end if;

        foreach target in array coalesce(tables, '{}') loop
          mode := case when target = any (pgflow_tables) then 'access exclusive' else 'share' end;
          if asked_at is null then
            asked_at := clock_timestamp();
            left_ms := null;
            perform set_config('lock_timeout', full_timeout, true);
          else
            left_ms := 1000 * extract(epoch from asked_at + brief - clock_timestamp());
            perform set_config('lock_timeout', greatest(left_ms, 1)::text, true);
          end if;
          execute format(
            'lock table %s in %s mode %s', target, mode, case when left_ms <= 0 then 'nowait' end
          );
        end loop;
      end loop;

      -- A rewritten table is empty in a snapshot from before: whoever reads on in such a transaction (pg_dump, waiting
      -- for its locks behind us, or REPEATABLE READ) would take that for the truth. Who has already read one of the
      -- tables holds a lock on it, and has been waited for.
      perform pg_stat_clear_snapshot();  -- else every try sees what the first one saw
      select string_agg(format('%s (%s)', a.pid, a.application_name), ', ' order by a.pid) into old_snapshots
      from pg_catalog.pg_stat_activity a
      where a.datname = current_database()
        and a.pid <> pg_backend_pid()
        and a.backend_xmin is not null
        and (a.state like 'idle in transaction%' or a.application_name = 'pg_dump');
      if old_snapshots is not null then
        target := null;
        raise exception 'snapshots from before the upgrade are still open: pid %', old_snapshots
          using errcode = 'lock_not_available';
      end if;

      exit;
    exception
      when lock_not_available or deadlock_detected then
        if clock_timestamp() >= give_up_at then
          raise;
        end if;
        busy := target;
      when undefined_table then
        -- The queue that we waited for has been dropped. A table of pgflow's own would be missing for good.
        if target = any (pgflow_tables) then
          raise;
        end if;
        busy := null;
    end;
    -- Nothing is held here. The jitter keeps us out of step with a busy producer.
    perform pg_sleep(0.1 + 0.2 * random());
  end loop;

  -- The fence stands. What follows meets no contention but on objects outside it, such as pg_catalog.
  perform set_config('lock_timeout', full_timeout, true);
  perform set_config('pgflow_migrate.fence', 'stands', true);
end;
$fence$;
