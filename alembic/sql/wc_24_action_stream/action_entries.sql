-- action_entries: what an action is told, in order, and how far each of it has come.

CREATE TABLE IF NOT EXISTS action_entries (
      id TEXT PRIMARY KEY,
      work_item_id TEXT NOT NULL REFERENCES work_items(id) ON DELETE CASCADE,
      action_id TEXT NOT NULL REFERENCES actions(id) ON DELETE CASCADE,
      run_id TEXT REFERENCES runs(id) ON DELETE SET NULL,
      sequence INTEGER NOT NULL,
      kind TEXT NOT NULL CHECK(kind IN ('message', 'control')),
      role TEXT,
      status TEXT NOT NULL CHECK(status IN
        ('pending', 'scheduled', 'bound', 'consumed', 'blocked', 'rejected', 'cancelled')),
      text TEXT NOT NULL DEFAULT '',
      attachments TEXT NOT NULL DEFAULT '[]',
      source_key TEXT NOT NULL UNIQUE,
      payload TEXT NOT NULL DEFAULT '{}',
      engine_turn_id TEXT,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      consumed_at INTEGER,
      UNIQUE(action_id, sequence)
    );
