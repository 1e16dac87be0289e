-- The fence: from here to the end of the transaction nobody else writes what the preflight is about to judge.
--
-- Order, and the mode from the start (a lock is never upgraded):
--   1. the advisory lock of pgflow-migrate                     one upgrade at a time
--   2. pgflow.runs, step_states, step_tasks                    ACCESS EXCLUSIVE: producers, workers, recovery, pruning
--   3. pgflow.flows, steps, deps                               ACCESS EXCLUSIVE: definitions, compilation, deletion
--   4. pgmq.meta                                               SHARE: creating and dropping queues
--   5. the queue table of every flow, in name order            SHARE: sends and archives past pgflow
--
-- The first table lock waits up to lock_timeout. While any lock is held, each further one waits so briefly (well
-- below deadlock_timeout) that no other session is ever chosen as a deadlock victim because of us; on failure the
-- subtransaction gives all of them back before the next try. The budget for all tries is max_wait.
-- Settings, both transaction-local, set by the caller: pgflow_migrate.lock_timeout (5s), pgflow_migrate.max_wait
-- (lock_timeout).
do $fence$
declare
  full_timeout constant text := coalesce(nullif(current_setting('pgflow_migrate.lock_timeout', true), ''), '5s');
  budget constant interval := coalesce(nullif(current_setting('pgflow_migrate.max_wait', true), ''), full_timeout);
  give_up_at constant timestamptz := clock_timestamp() + budget;
  queue_tables text;
begin
  perform set_config('lock_timeout', full_timeout, true);
  perform pg_advisory_xact_lock(hashtextextended('pgflow-migrate', 0));

  loop
    begin
      perform set_config('lock_timeout', full_timeout, true);
      lock table pgflow.runs in access exclusive mode;

      perform set_config('lock_timeout', '200ms', true);
      lock table pgflow.step_states, pgflow.step_tasks in access exclusive mode;
      lock table pgflow.flows, pgflow.steps, pgflow.deps in access exclusive mode;

      -- Without PGMQ there is nothing to lock; the preflight reports it.
      if exists (
        select from pg_catalog.pg_class c
        join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'pgmq' and c.relname = 'meta' and c.relkind in ('r', 'p')
      ) then
        lock table pgmq.meta in share mode;
      end if;

      select string_agg(format('pgmq.%I', c.relname), ', ' order by c.relname collate "C")
      into queue_tables
      from pg_catalog.pg_class c
      join pg_catalog.pg_namespace n on n.oid = c.relnamespace
      where n.nspname = 'pgmq'
        and c.relkind in ('r', 'p')
        and c.relname in (select 'q_' || lower(f.flow_slug) from pgflow.flows f);
      if queue_tables is not null then
        execute format('lock table %s in share mode', queue_tables);
      end if;

      exit;
    exception
      when lock_not_available or deadlock_detected then
        if clock_timestamp() >= give_up_at then
          raise;
        end if;
    end;
    -- Nothing is held here. The jitter keeps us out of step with a busy producer.
    perform pg_sleep(0.1 + 0.2 * random());
  end loop;

  -- The fence stands. What follows meets no contention but on objects outside it, such as pg_catalog.
  perform set_config('lock_timeout', full_timeout, true);
end;
$fence$;
