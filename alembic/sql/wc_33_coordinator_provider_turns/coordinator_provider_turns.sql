-- coordinator_provider_turns: the attempts of a coordinator's turn at its provider, each with request and answer.

CREATE TABLE IF NOT EXISTS coordinator_provider_turns (
      id TEXT PRIMARY KEY,
      work_item_id TEXT NOT NULL REFERENCES work_items(id) ON DELETE CASCADE,
      coordinator_turn_id TEXT NOT NULL,
      attempt_number INTEGER NOT NULL,
      status TEXT NOT NULL CHECK(status IN ('prepared', 'dispatching', 'responded', 'unknown', 'cancelled')),
      request_body TEXT NOT NULL,
      request_hash TEXT NOT NULL,
      response TEXT,
      response_hash TEXT,
      error TEXT,
      prepared_at INTEGER NOT NULL,
      dispatched_at INTEGER,
      responded_at INTEGER,
      updated_at INTEGER NOT NULL,
      UNIQUE(coordinator_turn_id, attempt_number)
    );
