-- A run that has ended, and its result, stay as they are.

CREATE TRIGGER IF NOT EXISTS trg_runs_terminal_identity_immutable
    BEFORE UPDATE ON runs
    WHEN OLD.terminal_status IS NOT NULL AND (
      NEW.action_id IS NOT OLD.action_id OR NEW.work_item_id IS NOT OLD.work_item_id OR
      NEW.owner_boot_id IS NOT OLD.owner_boot_id OR NEW.lease_epoch IS NOT OLD.lease_epoch OR
      NEW.ordinal IS NOT OLD.ordinal OR NEW.started_at IS NOT OLD.started_at OR
      NEW.status IS NOT OLD.status OR NEW.ended_at IS NOT OLD.ended_at OR
      NEW.terminal_status IS NOT OLD.terminal_status OR NEW.terminal_at IS NOT OLD.terminal_at OR
      NEW.response IS NOT OLD.response OR NEW.summary IS NOT OLD.summary OR
      NEW.evidence IS NOT OLD.evidence OR NEW.waiting_reason IS NOT OLD.waiting_reason OR
      NEW.error IS NOT OLD.error OR NEW.failure_kind IS NOT OLD.failure_kind OR
      NEW.failure_code IS NOT OLD.failure_code OR NEW.review_decision IS NOT OLD.review_decision OR
      NEW.contract_patch IS NOT OLD.contract_patch OR NEW.checkpoint IS NOT OLD.checkpoint)
    BEGIN
      SELECT RAISE(ABORT, 'terminal Run result is immutable');
    END;
