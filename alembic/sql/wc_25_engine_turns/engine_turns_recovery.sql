-- The turns that a restart has to look at.

CREATE INDEX IF NOT EXISTS idx_engine_turns_recovery
      ON engine_turns(status, updated_at);
