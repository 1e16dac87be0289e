-- Archive messages of several queues, a batch for each queue.
-- The loop reads every group: a SELECT INTO over the groups would stop after the first row.
create or replace function pgflow._archive_messages(p_queue_names text[], p_msg_ids bigint[])
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  batch record;
begin
  for batch in
    select message.queue_name, array_agg(message.msg_id order by message.msg_id) as msg_ids
    from unnest(p_queue_names, p_msg_ids) as message (queue_name, msg_id)
    where message.msg_id is not null
    group by message.queue_name
    order by message.queue_name
  loop
    perform pgmq.archive(
      batch.queue_name,
      array(
        select unnest(batch.msg_ids)
        except
        select unnest(pgflow._v2_owned_messages(batch.queue_name, batch.msg_ids))
      )
    );
  end loop;
end;
$$;

comment on function pgflow._archive_messages(text[], bigint[]) is
  'Internal. Archive messages, given as parallel arrays of queue name and message id, one PGMQ call for '
  'each queue. NULL ids and messages of tasks of protocol 2 are left out; a message that is not in its queue is '
  'no error; a missing queue raises 42P01.';
