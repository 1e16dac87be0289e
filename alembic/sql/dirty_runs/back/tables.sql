-- The tables of protocol 2, which are empty, and its one column. Nothing is rewritten. No CASCADE: what somebody has
-- built on them stops this instead of going with them.
alter table pgflow.step_tasks
  drop constraint step_tasks_current_claim_fkey,
  drop constraint claimed_output_is_bounded,
  drop column current_claim_id;

drop table pgflow.task_claims;
drop table pgflow.run_work;

drop index pgflow.idx_steps_queue_name;
