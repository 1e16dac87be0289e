-- A claim waits for no message, as it waits for no task: who holds one may be waiting for a task that we hold.
create or replace function pgflow._free_messages(
  p_queue_name text, p_msg_ids bigint[], out free bigint[], out busy bigint[]
)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  execute format(
    $sql$
      select
        array(
          select message.msg_id
          from pgmq.%1$I message
          where message.msg_id = any ($1)
          order by message.msg_id
          for update skip locked
        ),
        array(select message.msg_id from pgmq.%1$I message where message.msg_id = any ($1) order by message.msg_id)
    $sql$,
    'q_' || p_queue_name
  ) into free, busy using p_msg_ids;
  busy := array(select unnest(busy) except select unnest(free) order by 1);
end;
$$;

comment on function pgflow._free_messages(text, bigint[]) is
  'Internal. Of the messages that are in a queue: locks those that nobody else has locked (free), and names '
  'the others (busy). 42P01 when there is no such queue.';
