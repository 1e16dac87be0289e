-- Repair B: unfinished tasks of failed runs end as cancelled.
-- Only the status changes; messages stay where they are.
-- Core behaviour: data repair done by 0.15.1.

update pgflow.step_tasks as task
set status = 'cancelled'
from pgflow.runs as run
where run.run_id = task.run_id
  and run.status = 'failed'
  and task.status in ('queued', 'started');
