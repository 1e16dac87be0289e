-- step_task_record: what a worker gets for each task that it claimed.
-- Core behaviour: composite type step_task_record.

create type pgflow.step_task_record as (
  flow_slug text,
  run_id uuid,
  step_slug text,
  input jsonb,
  msg_id bigint,
  task_index integer,
  flow_input jsonb
);
