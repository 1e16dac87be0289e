-- The last entry that a turn has claimed.
-- Older stores made engine_turns without it.

ALTER TABLE engine_turns ADD COLUMN claimed_through_sequence INTEGER NOT NULL DEFAULT 0;
