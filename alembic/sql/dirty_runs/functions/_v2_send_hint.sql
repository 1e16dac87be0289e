-- Events are hints: none of them undoes what the database has accepted.
create or replace function pgflow._v2_send_hint(p_run_id uuid, p_event text, p_payload jsonb)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
begin
  perform realtime.send(
    jsonb_build_object('event_type', p_event, 'run_id', p_run_id) || p_payload,
    case when p_payload ? 'step_slug'
      then format('step:%s:%s', p_payload ->> 'step_slug', p_payload ->> 'status')
      else p_event
    end,
    concat('pgflow:run:', p_run_id),
    false
  );
exception
  -- OTHERS leaves failed assertions out.
  when others or assert_failure then
    raise warning 'event % of run % was not sent: %', p_event, p_run_id, sqlerrm;
end;
$$;

comment on function pgflow._v2_send_hint(uuid, text, jsonb) is
  'Internal. Send an event of a run as protocol 1 names them; a failure is a warning.';
