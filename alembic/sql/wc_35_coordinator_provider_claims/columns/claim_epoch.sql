-- Counts the claims of an attempt, so that an earlier owner is told from a later one.

ALTER TABLE coordinator_provider_turns ADD COLUMN claim_epoch INTEGER NOT NULL DEFAULT 0;
