-- The entries that a turn carries, in order.

CREATE INDEX IF NOT EXISTS idx_action_entries_engine_turn ON action_entries(engine_turn_id, sequence);
