-- The address of a task of protocol 2 is for good.
create or replace function pgflow._v2_guard_task()
returns trigger
language plpgsql
-- Who writes need not be allowed to see what he would break (grants, row level security).
security definer
set search_path = pg_catalog, pg_temp
-- Where rows are hidden from the owner, too (FORCE ROW LEVEL SECURITY), this is an error, and not a wrong answer.
set row_security = off
as $$
begin
  -- Who may execute this may put it on a table of his own, whose columns are of types whose casts are his code: OLD and
  -- NEW are not looked at before.
  if tg_relid <> 'pgflow.step_tasks'::regclass then
    raise exception '% is not a table that this guards', tg_relid::regclass
      using errcode = 'trigger_protocol_violated';
  end if;

  -- Nor does a task come to a run of protocol 2 from elsewhere.
  if exists (select from pgflow.run_work work where work.run_id in (old.run_id, new.run_id)) then
    raise exception 'task (%, %, %): queue, message and address are never changed',
      old.run_id, old.step_slug, old.task_index
      using errcode = 'PF006', hint = 'Nothing was changed.';
  end if;
  return null;
end;
$$;

comment on function pgflow._v2_guard_task() is
  'Internal, trigger on step_tasks. PF006: address, queue and message of a task of protocol 2 never change.';
