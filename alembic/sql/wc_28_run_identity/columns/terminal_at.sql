-- When a run ended, in milliseconds since 1970.

ALTER TABLE runs ADD COLUMN terminal_at INTEGER;
