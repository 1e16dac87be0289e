-- When a request was sent.
-- Older stores made engine_turns without it.

ALTER TABLE engine_turns ADD COLUMN dispatched_at INTEGER;
