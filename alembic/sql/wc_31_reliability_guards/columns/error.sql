-- Why there is no answer.
-- Older stores made engine_turns without it.

ALTER TABLE engine_turns ADD COLUMN error TEXT;
