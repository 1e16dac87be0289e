-- A turn's attempts by claim.

CREATE INDEX IF NOT EXISTS idx_coordinator_provider_turns_claim
      ON coordinator_provider_turns(coordinator_turn_id, claim_owner, claim_epoch, status);
