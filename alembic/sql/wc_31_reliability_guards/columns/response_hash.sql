-- SHA-256 of the answer.
-- Older stores made engine_turns without it.

ALTER TABLE engine_turns ADD COLUMN response_hash TEXT;
