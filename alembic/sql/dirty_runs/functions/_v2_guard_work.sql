-- The work row: of a run of protocol 2, stable, its generations only ahead, attention for a person.
create or replace function pgflow._v2_guard_work()
returns trigger
language plpgsql
-- Who writes need not be allowed to see what he would break (grants, row level security).
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  hold text;
  fault text;
begin
  if tg_op = 'TRUNCATE' then
    -- Without protocol 2 tables may be truncated as ever, with CASCADE to this one.
    if exists (select from pgflow.run_work) then
      raise exception 'pgflow.% is evidence and is not truncated', tg_table_name using errcode = 'PF006';
    end if;
    return null;
  elsif tg_op = 'INSERT' then
    if not exists (select from pgflow.runs run where run.run_id = new.run_id and run.protocol_version = 2) then
      raise exception 'run % is not of protocol 2', new.run_id using errcode = 'PF005';
    end if;
    return new;
  elsif tg_op = 'DELETE' then
    hold := pgflow._v2_hold(old.run_id);
    if hold is not null then
      raise exception 'the work row of run % is kept: %', old.run_id, hold
        using errcode = 'object_not_in_prerequisite_state', hint = 'Nothing was deleted.';
    end if;
    return old;
  end if;

  fault := case
    when new.run_id <> old.run_id or new.created_at <> old.created_at then 'its identity never changes'
    when new.requested_generation not in (old.requested_generation, old.requested_generation + 1)
      then 'requests are raised one by one'
    when new.processed_generation < old.processed_generation then 'what is processed stays processed'
    when old.state = 'attention' and new.state <> 'attention' then 'attention is never cleared by itself'
  end;
  if fault is not null then
    raise exception 'work row of run %: %', old.run_id, fault using errcode = 'PF006', hint = 'Nothing was changed.';
  end if;
  return new;
end;
$$;

comment on function pgflow._v2_guard_work() is
  'Internal, trigger on run_work. PF005 for a run of another protocol; PF006 for an update that changes identity, '
  'lowers or skips generations, or clears attention, and for TRUNCATE; 55000 for a deletion before it is safe.';
