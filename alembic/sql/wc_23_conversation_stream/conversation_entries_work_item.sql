-- The entries of a work item, in order, without the way through its conversation.

CREATE INDEX IF NOT EXISTS idx_conversation_entries_work_item
      ON conversation_entries(work_item_id, sequence);
