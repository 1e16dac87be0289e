-- A worker that meets work it cannot judge stops, and must not be started again by HTTP until a person has looked.
alter table pgflow.worker_functions
  add column paused_at timestamptz,
  add column pause_reason text,
  add constraint pause_has_a_reason check ((paused_at is null) = (pause_reason is null));

comment on column pgflow.worker_functions.paused_at is
  'Since when ensure_workers() leaves this function alone; lifted by resume_worker_function().';
comment on column pgflow.worker_functions.pause_reason is
  'Why: queue and message ids, never a message body.';
