-- The status that a run ended with.

ALTER TABLE runs ADD COLUMN terminal_status TEXT;
