-- A claim waits for no message, as it waits for no task: who holds one may be waiting for a task that we hold.
create or replace function pgflow._free_messages(p_queue_name text, p_msg_ids bigint[])
returns bigint[]
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  free bigint[];
begin
  execute format(
    $sql$
      select array(
        select message.msg_id
        from pgmq.%I message
        where message.msg_id = any ($1)
        order by message.msg_id
        for update skip locked
      )
    $sql$,
    'q_' || p_queue_name
  ) into free using p_msg_ids;
  return free;
end;
$$;

comment on function pgflow._free_messages(text, bigint[]) is
  'Internal. Locks those of the messages of a queue that nobody else has locked, and returns their ids. 42P01 '
  'when there is no such queue.';
