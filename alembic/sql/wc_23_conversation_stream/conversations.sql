-- conversations: one for each work item; what people and coordinator say about it is its entries.

CREATE TABLE IF NOT EXISTS conversations (
      id TEXT PRIMARY KEY,
      work_item_id TEXT NOT NULL UNIQUE REFERENCES work_items(id) ON DELETE CASCADE,
      status TEXT NOT NULL DEFAULT 'active',
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL
    );
