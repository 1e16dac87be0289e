-- The stricter slug rules: '__' belongs to generated queue names, so that lower(flow || '__' || step) is unambiguous.
-- Re-adding the constraints validates every existing definition, with or without runs, under the new rule. A check that
-- somebody has dropped is put back.
alter table pgflow.flows
  drop constraint if exists slug_is_valid,
  add constraint slug_is_valid check (pgflow.is_valid_slug(flow_slug));

alter table pgflow.steps
  drop constraint if exists steps_step_slug_check,
  add constraint steps_step_slug_check check (pgflow.is_valid_slug(step_slug));

-- PGMQ lower-cases table names, so slugs that differ only in case would share one physical queue.
create unique index flows_slug_case_insensitive_key on pgflow.flows (lower(flow_slug));
create unique index steps_slug_case_insensitive_key on pgflow.steps (flow_slug, lower(step_slug));
