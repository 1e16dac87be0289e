-- The last entry that a turn has consumed.
-- Older stores made engine_turns without it.

ALTER TABLE engine_turns ADD COLUMN consumed_through_sequence INTEGER NOT NULL DEFAULT 0;
