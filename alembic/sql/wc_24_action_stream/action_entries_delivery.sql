-- What is still to be delivered to a run.

CREATE INDEX IF NOT EXISTS idx_action_entries_delivery
      ON action_entries(action_id, run_id, status, sequence);
