-- What the provider promises about a request that is sent twice.
-- Older stores made engine_turns without it.

ALTER TABLE engine_turns ADD COLUMN dispatch_capability TEXT NOT NULL DEFAULT 'unknown';
