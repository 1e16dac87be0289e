-- set_vt_batch(queue_name, msg_ids, vt_offsets): set the visibility of many messages, each to its own time.
-- Why not pgmq.set_vt: it takes one message a call, or one time for all.
-- Core behaviour: set_vt_batch.

create function pgflow.set_vt_batch(queue_name text, msg_ids bigint[], vt_offsets integer[])
returns table (
  msg_id bigint,
  read_ct integer,
  enqueued_at timestamptz,
  vt timestamptz,
  message jsonb,
  headers jsonb
)
language plpgsql
as $function$
begin
  if msg_ids is null or vt_offsets is null then
    return;
  end if;

  if array_length(msg_ids, 1) is distinct from array_length(vt_offsets, 1) then
    raise exception 'msg_ids length (%) must equal vt_offsets length (%)',
      array_length(msg_ids, 1), array_length(vt_offsets, 1);
  end if;

  -- Columns by name: newer PGMQ has last_read_at among them.
  return query execute format(
    $query$
      update pgmq.%I as queued
      set vt = clock_timestamp() + make_interval(secs => wanted.vt_offset)
      from unnest($1, $2) as wanted (msg_id, vt_offset)
      where queued.msg_id = wanted.msg_id
      returning queued.msg_id, queued.read_ct, queued.enqueued_at, queued.vt, queued.message, queued.headers
    $query$,
    pgmq.format_table_name(queue_name, 'q')
  ) using msg_ids, vt_offsets;
end
$function$;

comment on function pgflow.set_vt_batch(text, bigint[], integer[]) is
  'Makes each message visible at the wall clock plus its offset in seconds; returns the rows found.';
