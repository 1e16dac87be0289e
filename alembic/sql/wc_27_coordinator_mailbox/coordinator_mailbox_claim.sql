-- What can be claimed.

CREATE INDEX IF NOT EXISTS idx_coordinator_mailbox_claim
      ON coordinator_mailbox_entries(status, lease_expires_at, sequence);
