-- Older stores have these two with other conditions; they are made anew.

DROP TRIGGER IF EXISTS trg_runs_capture_terminal_identity;
DROP TRIGGER IF EXISTS trg_runs_terminal_identity_immutable;
