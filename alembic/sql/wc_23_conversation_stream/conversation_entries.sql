-- conversation_entries: a conversation in order. source_key says where an entry comes from, and lets none in twice.

CREATE TABLE IF NOT EXISTS conversation_entries (
      id TEXT PRIMARY KEY,
      conversation_id TEXT NOT NULL REFERENCES conversations(id) ON DELETE CASCADE,
      work_item_id TEXT NOT NULL REFERENCES work_items(id) ON DELETE CASCADE,
      sequence INTEGER NOT NULL,
      kind TEXT NOT NULL CHECK(kind IN ('message', 'control')),
      role TEXT,
      status TEXT NOT NULL,
      text TEXT NOT NULL DEFAULT '',
      attachments TEXT NOT NULL DEFAULT '[]',
      turn_id TEXT,
      source_key TEXT NOT NULL UNIQUE,
      payload TEXT NOT NULL DEFAULT '{}',
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      UNIQUE(conversation_id, sequence)
    );
