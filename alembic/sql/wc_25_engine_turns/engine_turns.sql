-- engine_turns: the requests of a run to the engine, each with its answer.
-- A store that has the table in an older shape keeps that until step 32.

CREATE TABLE IF NOT EXISTS engine_turns (
      id TEXT PRIMARY KEY,
      work_item_id TEXT NOT NULL REFERENCES work_items(id) ON DELETE CASCADE,
      action_id TEXT NOT NULL REFERENCES actions(id) ON DELETE CASCADE,
      run_id TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
      ordinal INTEGER NOT NULL,
      status TEXT NOT NULL CHECK(status IN
        ('prepared', 'dispatching', 'responded', 'unknown', 'cancelled', 'legacy_imported')),
      owner_boot_id TEXT NOT NULL,
      lease_epoch INTEGER NOT NULL,
      input_entry_ids TEXT NOT NULL DEFAULT '[]',
      message_entry_ids TEXT NOT NULL DEFAULT '[]',
      control_entry_ids TEXT NOT NULL DEFAULT '[]',
      claimed_through_sequence INTEGER NOT NULL DEFAULT 0,
      consumed_through_sequence INTEGER NOT NULL DEFAULT 0,
      request_body TEXT NOT NULL DEFAULT '{}',
      request_hash TEXT NOT NULL DEFAULT '',
      request_key TEXT NOT NULL UNIQUE,
      dispatch_attempt INTEGER NOT NULL DEFAULT 0,
      dispatch_capability TEXT NOT NULL DEFAULT 'unknown',
      response TEXT,
      response_hash TEXT,
      provider_request_id TEXT,
      claimed_at INTEGER,
      dispatched_at INTEGER,
      responded_at INTEGER,
      consumed_at INTEGER,
      error TEXT,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      UNIQUE(run_id, ordinal)
    );
