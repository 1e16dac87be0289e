-- Which run it is never changes.

CREATE TRIGGER IF NOT EXISTS trg_runs_identity_immutable
    BEFORE UPDATE ON runs
    WHEN NEW.action_id IS NOT OLD.action_id OR NEW.work_item_id IS NOT OLD.work_item_id OR
      NEW.owner_boot_id IS NOT OLD.owner_boot_id OR NEW.lease_epoch IS NOT OLD.lease_epoch OR
      NEW.ordinal IS NOT OLD.ordinal OR NEW.started_at IS NOT OLD.started_at
    BEGIN
      SELECT RAISE(ABORT, 'Run identity is immutable');
    END;
