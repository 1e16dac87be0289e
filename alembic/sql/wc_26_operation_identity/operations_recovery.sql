-- The operations that a restart has to look at.

CREATE INDEX IF NOT EXISTS idx_operations_recovery
      ON operations(execution_status, replay_policy, effect_status, updated_at);
