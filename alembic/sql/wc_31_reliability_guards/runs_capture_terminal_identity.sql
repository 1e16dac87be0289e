-- A run that ends notes with which status and when; before the guard below is on it.

CREATE TRIGGER IF NOT EXISTS trg_runs_capture_terminal_identity
    AFTER UPDATE OF status ON runs
    WHEN OLD.terminal_status IS NULL AND OLD.status = 'running' AND NEW.status != 'running'
    BEGIN
      UPDATE runs SET terminal_status = NEW.status,
        terminal_at = COALESCE(NEW.ended_at, NEW.started_at)
        WHERE id = NEW.id AND terminal_status IS NULL;
    END;
