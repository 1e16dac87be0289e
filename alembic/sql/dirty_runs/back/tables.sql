-- The tables of protocol 2, which are empty, and its columns. Nothing is rewritten. No CASCADE: what somebody has built
-- on them stops this instead of going with them.
alter table pgflow.step_tasks
  drop constraint step_tasks_current_claim_fkey,
  drop constraint claimed_output_is_bounded,
  drop column current_claim_id;

drop table pgflow.task_claims;
drop table pgflow.run_work;

drop index pgflow.idx_runs_protocol_2;
drop index pgflow.idx_steps_queue_name;

alter table pgflow.runs
  drop constraint protocol_2_output_is_bounded,
  drop constraint protocol_2_input_is_bounded,
  drop constraint definition_identity_matches_protocol,
  drop constraint protocol_version_is_known,
  drop column definition_sha256,
  drop column protocol_version;
