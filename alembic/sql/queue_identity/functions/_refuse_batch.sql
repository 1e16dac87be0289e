-- A batch with work that cannot be judged: given back whole, and its worker kept from being started again.
-- No exception: it would roll back just that.
create or replace function pgflow._refuse_batch(
  p_queue_name text, p_msg_ids bigint[], p_worker_id uuid, p_reason text, p_messages jsonb, p_message_count integer
)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  named constant jsonb := jsonb_path_query_array(p_messages, '$[0 to 19]');
  account constant text := p_reason || coalesce(
    (
      select format(
        ': %s message%s, %s%s', p_message_count, case when p_message_count > 1 then 's' end,
        string_agg(format('%s (%s)', message ->> 'msg_id', message ->> 'reason'), ', '),
        case when p_message_count > 20 then ', ...' end
      )
      from jsonb_array_elements(named) as message
      having count(*) > 0
    ), ''
  );
  free bigint[];
begin
  if to_regclass(format('pgmq.%I', 'q_' || p_queue_name)) is not null then
    select message.free into free from pgflow._free_messages(p_queue_name, p_msg_ids) message;
    perform pgflow.set_vt_batch(p_queue_name, free, array_fill(0, array[cardinality(free)]));
  end if;

  return jsonb_build_object(
    'outcome', 'fatal',
    'queue_name', p_queue_name,
    'reason', account,
    'messages', named,
    'message_count', p_message_count,
    'paused_function', pgflow._pause_worker_function(p_worker_id, account)
  );
end;
$$;

comment on function pgflow._refuse_batch(text, bigint[], uuid, text, jsonb, integer) is
  'Internal. The fatal outcome of a claim: what nobody else has locked of the batch is visible again, the '
  'worker''s function is paused, and the reason names at most 20 messages by id, never by body.';
