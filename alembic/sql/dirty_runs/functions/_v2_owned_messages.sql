-- Functions of protocol 1 that are given message ids leave these alone.
create or replace function pgflow._v2_owned_messages(p_queue_name text, p_msg_ids bigint[])
returns bigint[]
language plpgsql
stable
-- Who calls need not be allowed to read pgflow.runs, and row level security must not hide a run.
security definer
set search_path = pg_catalog, pg_temp
-- Where rows are hidden from the owner, too (FORCE ROW LEVEL SECURITY), this is an error, and not a wrong answer.
set row_security = off
as $$
begin
  -- As a rule there is no such run.
  if not exists (select from pgflow.run_work) then
    return array[]::bigint[];
  end if;
  return array(
    select task.message_id
    from pgflow.step_tasks task
    join pgflow.run_work work on work.run_id = task.run_id
    where task.queue_name = lower(p_queue_name) and task.message_id = any (p_msg_ids)
  );
end;
$$;

comment on function pgflow._v2_owned_messages(text, bigint[]) is
  'Internal. Which of these messages of a queue (any spelling) belong to tasks of protocol 2.';
