-- The attempts that a restart has to look at.

CREATE INDEX IF NOT EXISTS idx_coordinator_provider_turns_recovery
      ON coordinator_provider_turns(status, updated_at);
