-- coordinator_mailbox_entries: what waits for a work item's coordinator, claimed under a lease.

CREATE TABLE IF NOT EXISTS coordinator_mailbox_entries (
      id TEXT PRIMARY KEY,
      work_item_id TEXT NOT NULL REFERENCES work_items(id) ON DELETE CASCADE,
      sequence INTEGER NOT NULL,
      kind TEXT NOT NULL,
      status TEXT NOT NULL CHECK(status IN ('pending', 'claimed', 'acked', 'cancelled')),
      source_key TEXT NOT NULL UNIQUE,
      payload TEXT NOT NULL DEFAULT '{}',
      claim_owner TEXT,
      claim_epoch INTEGER NOT NULL DEFAULT 0,
      claimed_at INTEGER,
      lease_expires_at INTEGER,
      acked_at INTEGER,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      UNIQUE(work_item_id, sequence)
    );
