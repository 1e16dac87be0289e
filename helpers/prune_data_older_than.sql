-- The optional pruning helper for queue identity: pgflow.prune_data_older_than(retention_interval interval).
--
-- Paste all of it at once into psql, Supabase's SQL editor or any other client, as the owner of schema
-- pgflow. It is one statement: either the helper is installed, or nothing happens and the error says why. It
-- replaces the helper that pgflow documents, in both of its versions, and itself. A helper that somebody has
-- changed is refused, not overwritten. No upgrade installs it.
--
-- It works with and without protocol 2 (revision dirty_runs), and leaves all of protocol 2 alone.
--
-- Then, from cron or by hand: select pgflow.prune_data_older_than(interval '30 days');
do $install$
declare
  -- md5 of bodies in lower case without comments and white space: what may be replaced.
  replaceable_md5s constant text[] := array[
    'fcba8d05326f47f4b94801fadc18a15c',  -- documented since 0.7.0
    'e7cbf1f31d65d4cb3020b74b015072da',  -- documented from 0.2.3 to 0.6.1
    '0a1018a18bd0e2e8171621b1e9c03406',  -- the one below, before there was protocol 2
    '9dfc1a38ead3fd983546e110e7d0f625'  -- the one below
  ];
begin
  if not exists (
    select
    from pg_catalog.pg_attribute a
    join pg_catalog.pg_class c on c.oid = a.attrelid
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'pgflow' and c.relname = 'step_tasks'
      and a.attname = 'queue_name' and not a.attisdropped
  ) then
    raise exception 'this pruning helper needs queue identity: pgflow.step_tasks has no column queue_name'
      using errcode = 'object_not_in_prerequisite_state',
            hint = 'Nothing was installed. Upgrade the database first, then install the helper.';
  end if;

  if exists (
    select
    from pg_catalog.pg_proc p
    join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'pgflow'
      and p.proname = 'prune_data_older_than'
      and pg_catalog.oidvectortypes(p.proargtypes) = 'interval'
      and (
        p.prosecdef
        or coalesce(p.proconfig <> array['search_path=pg_catalog, pg_temp'], false)
        or pg_catalog.md5(pg_catalog.regexp_replace(
          pg_catalog.regexp_replace(
            pg_catalog.lower(p.prosrc collate "C"), '--[^' || pg_catalog.chr(10) || ']*', '', 'g'
          ),
          '[[:space:]]', '', 'g'
        )) <> all (replaceable_md5s)
      )
  ) then
    raise exception
      'pgflow.prune_data_older_than(interval) is not the documented one: somebody has changed it'
      using errcode = 'object_not_in_prerequisite_state',
            hint = 'Nothing was installed. Adapt that function by hand; or keep its text somewhere, drop it '
              '(drop function pgflow.prune_data_older_than(interval);) and install this one.';
  end if;

  create or replace function pgflow.prune_data_older_than(retention_interval interval)
  returns void
  language plpgsql
  volatile
  security invoker
  set search_path = pg_catalog, pg_temp
  as $prune$
-- Lock order, as everywhere in pgflow: runs, step states, tasks, queues. So a late callback, a claim or the
-- recovery may have to wait for this function, or this function for them, but never both.
declare
  cut_off constant timestamptz := now() - retention_interval;
  has_protocols constant boolean := to_regclass('pgflow.run_work') is not null;
  old_runs uuid[];
  dead_workers uuid[];
  their_tasks tid[];
  pruned_queues text[] := array[]::text[];
  batch record;
  archived_queue text;
begin
  if cut_off is null then
    return;
  end if;

  -- One pruning at a time: two of them could meet in the archives in different orders.
  perform pg_advisory_xact_lock(hashtextextended('pgflow.prune_data_older_than', 0));

  -- Decided once. A run that ends from here on is left to the next pruning. Runs of protocol 2 are not even
  -- locked: they go with their flow, once that is safe. What names run_work is planned only where that
  -- table is.
  if has_protocols then
    select array_agg(locked.run_id) into old_runs
    from (
      select run.run_id
      from pgflow.runs run
      where (run.completed_at < cut_off or run.failed_at < cut_off)
        and not exists (select from pgflow.run_work work where work.run_id = run.run_id)
      order by run.run_id
      for update
    ) as locked;
  else
    select array_agg(locked.run_id) into old_runs
    from (
      select run.run_id
      from pgflow.runs run
      where run.completed_at < cut_off or run.failed_at < cut_off
      order by run.run_id
      for update
    ) as locked;
  end if;

  perform
  from pgflow.step_states state
  where state.run_id = any (old_runs)
  order by state.run_id, state.step_slug
  for update;

  -- Messages by the queue and id that each task has itself. A missing queue raises 42P01: nothing is deleted.
  for batch in
    with pruned as (
      delete from pgflow.step_tasks task
      where task.run_id = any (old_runs)
      returning task.queue_name, task.message_id
    )
    select pruned.queue_name, array_agg(pruned.message_id) as msg_ids
    from pruned
    where pruned.message_id is not null
    group by pruned.queue_name
    order by pruned.queue_name
  loop
    perform pgmq.delete(batch.queue_name, batch.msg_ids);
    pruned_queues := pruned_queues || batch.queue_name;
  end loop;

  delete from pgflow.step_states state where state.run_id = any (old_runs);
  delete from pgflow.runs run where run.run_id = any (old_runs);

  -- Archives of pgflow's own queues: of every step's route; of tasks sent elsewhere before their route was
  -- changed; and of flows without steps, if the queue was made together with the flow: else it may be a
  -- stranger's. Messages of protocol 2 are kept as long as their tasks.
  for archived_queue in
    select step.queue_name from pgflow.steps step
    union
    select task.queue_name from pgflow.step_tasks task where task.message_id is not null
    union
    select unnest(pruned_queues)
    union
    select lower(flow.flow_slug)
    from pgflow.flows flow
    join pgmq.meta meta
      on lower(meta.queue_name) = lower(flow.flow_slug) and meta.created_at = flow.created_at
    order by 1
  loop
    begin
      execute format(
        'delete from pgmq.%I archived where archived.archived_at < $1 ', 'a_' || archived_queue
      ) || case when has_protocols then
        'and not exists ('
        'select from pgflow.step_tasks task join pgflow.run_work work on work.run_id = task.run_id '
        'where task.queue_name = $2 and task.message_id = archived.msg_id)'
      else '' end
      using cut_off, archived_queue;
    exception
      when undefined_table then
        null;  -- no archive, or dropped while we waited for it
    end;
  end loop;

  -- Workers last, and without waiting: their deletion takes them off tasks of runs that go on. A claim holds
  -- its task and then asks for its worker; a worker in use in this moment is left to the next pruning.
  select array_agg(locked.worker_id) into dead_workers
  from (
    select worker.worker_id
    from pgflow.workers worker
    where worker.last_heartbeat_at < cut_off
    for update skip locked
  ) as locked;

  -- Looked up and changed apart, because a statement does not see the row that its own lock has waited for.
  select array_agg(locked.ctid) into their_tasks
  from (
    select task.ctid
    from pgflow.step_tasks task
    where task.last_worker_id = any (dead_workers)
    for update skip locked
  ) as locked;
  update pgflow.step_tasks task set last_worker_id = null where task.ctid = any (their_tasks);

  delete from pgflow.workers worker
  where worker.worker_id = any (dead_workers)
    and not exists (select from pgflow.step_tasks task where task.last_worker_id = worker.worker_id);
end;
$prune$;

  comment on function pgflow.prune_data_older_than(interval) is
    'Optional maintenance: delete runs that completed or failed longer ago than the interval, with their '
    'step states, tasks and active messages; archived messages of pgflow''s queues that are older; and '
    'workers whose last heartbeat is older. Runs that go on, runs of protocol 2 with all that is theirs, '
    'definitions and queues stay. NULL deletes nothing.';
end;
$install$;
