-- A request that is prepared stays as it is.

CREATE TRIGGER IF NOT EXISTS trg_coordinator_provider_request_immutable
    BEFORE UPDATE ON coordinator_provider_turns
    WHEN NEW.work_item_id IS NOT OLD.work_item_id OR
      NEW.coordinator_turn_id IS NOT OLD.coordinator_turn_id OR
      NEW.attempt_number IS NOT OLD.attempt_number OR
      NEW.request_body IS NOT OLD.request_body OR NEW.request_hash IS NOT OLD.request_hash
    BEGIN
      SELECT RAISE(ABORT, 'prepared Coordinator provider request is immutable');
    END;
