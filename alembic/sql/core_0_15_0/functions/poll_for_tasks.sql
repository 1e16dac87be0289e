-- poll_for_tasks(...): kept so that an old worker is told what is wrong with it.
-- Core behaviour: poll_for_tasks.

create function pgflow.poll_for_tasks(
  queue_name text,
  vt integer,
  qty integer,
  max_poll_seconds integer default 5,
  poll_interval_ms integer default 100
)
returns setof pgflow.step_task_record
language plpgsql
set search_path = ''
as $function$
begin
  raise notice 'pgflow.poll_for_tasks is deprecated and returns nothing: '
    'read messages with pgmq.read_with_poll, then claim them with pgflow.start_tasks';
end
$function$;

comment on function pgflow.poll_for_tasks(text, integer, integer, integer, integer) is
  'Deprecated: raises a notice and returns no rows.';
