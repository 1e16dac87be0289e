-- A PGMQ message id means something only together with its queue. Tasks without a message (null) are not constrained.
create unique index step_tasks_queue_message_key
  on pgflow.step_tasks (queue_name, message_id)
  where message_id is not null;
