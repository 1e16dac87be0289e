-- No two runs of an action have the same number.

CREATE UNIQUE INDEX IF NOT EXISTS idx_runs_action_ordinal ON runs(action_id, ordinal);
