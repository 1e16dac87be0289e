-- A work item's mailbox, by status.

CREATE INDEX IF NOT EXISTS idx_mailbox_work_item_status
      ON coordinator_mailbox_entries(work_item_id, status, sequence);
