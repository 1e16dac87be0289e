-- Step 31's trigger, on the new table.

CREATE TRIGGER trg_engine_turn_request_immutable
    BEFORE UPDATE ON engine_turns
    WHEN NEW.run_id IS NOT OLD.run_id OR NEW.ordinal IS NOT OLD.ordinal OR
      NEW.request_body IS NOT OLD.request_body OR NEW.request_hash IS NOT OLD.request_hash OR
      NEW.input_entry_ids IS NOT OLD.input_entry_ids OR
      NEW.message_entry_ids IS NOT OLD.message_entry_ids OR NEW.control_entry_ids IS NOT OLD.control_entry_ids
    BEGIN
      SELECT RAISE(ABORT, 'prepared EngineTurn request is immutable');
    END;
