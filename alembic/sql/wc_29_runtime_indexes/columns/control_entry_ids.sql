-- The controls among the entries that a turn carries.
-- Older stores made engine_turns without it.

ALTER TABLE engine_turns ADD COLUMN control_entry_ids TEXT NOT NULL DEFAULT '[]';
