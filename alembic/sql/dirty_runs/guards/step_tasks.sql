-- The address of a task of protocol 2 is for good. No function of protocol 1 updates these columns.
-- After the update, as on runs.

create trigger protocol_2_address
  after update of flow_slug, run_id, step_slug, task_index, queue_name, message_id on pgflow.step_tasks
  for each row
  when (
    (old.flow_slug, old.run_id, old.step_slug, old.task_index, old.queue_name, old.message_id)
      is distinct from (new.flow_slug, new.run_id, new.step_slug, new.task_index, new.queue_name, new.message_id)
  )
  execute function pgflow._v2_guard_task();
