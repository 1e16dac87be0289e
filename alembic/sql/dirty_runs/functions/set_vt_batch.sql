-- Visibility of many messages of one queue, an offset for each: PGMQ itself sets one message, or one offset for all.
create or replace function pgflow.set_vt_batch(queue_name text, msg_ids bigint[], vt_offsets integer[])
returns table (
  msg_id bigint, read_ct integer, enqueued_at timestamptz, vt timestamptz, message jsonb, headers jsonb
)
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  foreign_ids bigint[];
begin
  if msg_ids is null or vt_offsets is null then
    return;
  end if;
  if array_length(msg_ids, 1) is distinct from array_length(vt_offsets, 1) then
    raise exception 'msg_ids length (%) must equal vt_offsets length (%)',
      array_length(msg_ids, 1), array_length(vt_offsets, 1);
  end if;

  foreign_ids := pgflow._v2_owned_messages(set_vt_batch.queue_name, set_vt_batch.msg_ids);

  return query execute format(
    $sql$
      with target as (
        select q.msg_id, wanted.vt_offset
        from pgmq.%1$I q
        join unnest($1, $2) as wanted (msg_id, vt_offset) on wanted.msg_id = q.msg_id
        where q.msg_id <> all ($3)
        -- in id order, so that two batches never wait for each other in a circle
        order by q.msg_id
        for update of q
      )
      update pgmq.%1$I q
      set vt = clock_timestamp() + make_interval(secs => target.vt_offset)
      from target
      where q.msg_id = target.msg_id
      returning q.msg_id, q.read_ct, q.enqueued_at, q.vt, q.message, q.headers
    $sql$,
    pgmq.format_table_name(set_vt_batch.queue_name, 'q')
  )
  using msg_ids, vt_offsets, foreign_ids;
end;
$$;

comment on function pgflow.set_vt_batch(text, bigint[], integer[]) is
  'Make each message of a queue visible again its offset (seconds) from now; returns the changed messages. '
  'Ids that are not in the queue, and messages of tasks of protocol 2, are left out. P0001 when the arrays differ in '
  'length; 42P01 when there is no such queue.';
