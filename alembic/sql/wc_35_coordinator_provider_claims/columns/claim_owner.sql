-- Who works on an attempt.

ALTER TABLE coordinator_provider_turns ADD COLUMN claim_owner TEXT;
