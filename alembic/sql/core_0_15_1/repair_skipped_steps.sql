-- Repair A: unfinished tasks of skipped steps end as skipped, in runs of any status.
-- Goes first: under a skipped step of a failed run, skipped wins over cancelled.
-- Only the status changes; messages stay where they are.
-- Core behaviour: data repair done by 0.15.1.

update pgflow.step_tasks as task
set status = 'skipped'
from pgflow.step_states as state
where state.run_id = task.run_id
  and state.step_slug = task.step_slug
  and state.status = 'skipped'
  and task.status in ('queued', 'started');
