-- The claim call of plain workers, as it was: its flow's default queue, its flow, the messages it has read.
create or replace function pgflow.start_tasks(flow_slug text, msg_ids bigint[], worker_id uuid)
returns setof pgflow.step_task_record
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  claim record;
begin
  if not exists (select from pgflow.flows flow where flow.flow_slug = start_tasks.flow_slug) then
    return;
  end if;

  claim := pgflow._claim_messages(
    lower(start_tasks.flow_slug), start_tasks.flow_slug, start_tasks.msg_ids, start_tasks.worker_id
  );
  if claim.outcome ->> 'outcome' <> 'claimed' then
    raise warning 'start_tasks(): %', claim.outcome ->> 'reason'
      using hint = 'Nothing was claimed. See pgflow.claim_tasks.';
    return;
  end if;

  return query
    select task.* from pgflow._task_records(claim.outcome ->> 'queue_name', claim.claimed) task;
end;
$$;

comment on function pgflow.start_tasks(text, bigint[], uuid) is
  'claim_tasks on a flow''s default queue, with the result as it always was: a record for each claimed task. '
  'A fatal outcome is a warning and no rows; an unknown flow is no rows.';
