-- Claims: made only of an eligible task, by its own address; ended once; kept until deletion is safe.
create or replace function pgflow._v2_guard_claim()
returns trigger
language plpgsql
-- Who writes need not be allowed to see what he would break (grants, row level security).
security definer
set search_path = pg_catalog, pg_temp
-- Where rows are hidden from the owner, too (FORCE ROW LEVEL SECURITY), this is an error, and not a wrong answer.
set row_security = off
as $$
declare
  fault text;
  hold text;
begin
  -- Who may execute this may put it on a table of his own, whose columns are of types whose casts are his code: OLD and
  -- NEW are not looked at before.
  if tg_relid <> 'pgflow.task_claims'::regclass then
    raise exception '% is not a table that this guards', tg_relid::regclass
      using errcode = 'trigger_protocol_violated';
  end if;

  if tg_op = 'TRUNCATE' then
    -- Without protocol 2 tables may be truncated as ever, with CASCADE to this one. With it, tasks that nobody has
    -- claimed yet are to stay, too.
    -- A snapshot from before the rows does not show them; the size of the table does.
    if exists (select from pgflow.run_work)
      or (
        current_setting('transaction_isolation') <> 'read committed'
        and pg_relation_size('pgflow.run_work'::regclass) > 0
      )
    then
      raise exception 'pgflow.% is evidence and is not truncated', tg_table_name using errcode = 'PF006';
    end if;
    return null;
  elsif tg_op = 'INSERT' then
    select case
        when work.run_id is null or run.status <> 'started' then 'its run is not a started one of protocol 2'
        when work.state is distinct from 'clean' then 'its run''s work is not clean'
        when task.status <> 'queued' then 'its task is not queued'
        when (task.queue_name, task.message_id) is distinct from (new.queue_name, new.message_id)
          then 'its message is not its task''s'
        when new.state <> 'active' then 'it does not begin as active'
        when new.claim_number <> 1 + (
          select count(*)
          from pgflow.task_claims claim
          where (claim.run_id, claim.step_slug, claim.task_index) = (new.run_id, new.step_slug, new.task_index)
        ) then 'its number is not the next'
      end
    into fault
    from pgflow.step_tasks task
    join pgflow.runs run on run.run_id = task.run_id
    left join pgflow.run_work work on work.run_id = task.run_id
    where (task.run_id, task.step_slug, task.task_index) = (new.run_id, new.step_slug, new.task_index);
  elsif tg_op = 'DELETE' then
    hold := pgflow._v2_hold(old.run_id);
    if hold is not null then
      raise exception 'claim % is kept: run %: %', old.claim_id, old.run_id, hold
        using errcode = 'object_not_in_prerequisite_state', hint = 'Nothing was deleted.';
    end if;
    return old;
  elsif old.state <> 'active' then
    fault := format('it is %s already', old.state);
  elsif (
    old.claim_id, old.run_id, old.step_slug, old.task_index, old.claim_number, old.queue_name, old.message_id,
    old.worker_id, old.max_attempts, old.when_exhausted, old.timeout_seconds, old.claimed_at, old.lease_expires_at
  ) is distinct from (
    new.claim_id, new.run_id, new.step_slug, new.task_index, new.claim_number, new.queue_name, new.message_id,
    new.worker_id, new.max_attempts, new.when_exhausted, new.timeout_seconds, new.claimed_at, new.lease_expires_at
  ) then
    fault := 'its identity never changes';
  end if;

  if fault is not null then
    raise exception 'claim % on task (%, %, %): %', new.claim_id, new.run_id, new.step_slug, new.task_index, fault
      using errcode = 'PF006', hint = 'Nothing was changed.';
  end if;
  return new;
end;
$$;

comment on function pgflow._v2_guard_claim() is
  'Internal, trigger on task_claims. PF006 for a claim on a task that is not eligible, for any change of a claim''s '
  'identity or of one that is revoked or settled, and for TRUNCATE; 55000 for a deletion before it is safe.';
