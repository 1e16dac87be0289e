-- Tasks may now end as skipped or cancelled.
-- Why one statement: no moment without a check, and one scan. Takes ACCESS EXCLUSIVE on step_tasks.
-- Core behaviour: 0.15.1 relative to 0.15.0, statement 1.

alter table pgflow.step_tasks
  drop constraint valid_status,
  add constraint valid_status
    check (status in ('queued', 'started', 'completed', 'failed', 'skipped', 'cancelled'));
