-- operations: effects on the outside world, each under one idempotency key.
-- The long defaults stay on a line: the text of the table is kept in the store as it is here.

CREATE TABLE IF NOT EXISTS operations (
      id TEXT PRIMARY KEY,
      work_item_id TEXT NOT NULL REFERENCES work_items(id) ON DELETE CASCADE,
      action_id TEXT REFERENCES actions(id) ON DELETE CASCADE,
      run_id TEXT REFERENCES runs(id) ON DELETE CASCADE,
      engine_turn_id TEXT REFERENCES engine_turns(id) ON DELETE CASCADE,
      operation_type TEXT NOT NULL,
      target TEXT NOT NULL DEFAULT '{}',
      idempotency_key TEXT NOT NULL UNIQUE,
      replay_policy TEXT NOT NULL CHECK(replay_policy IN ('safe', 'probe_first', 'never_automatic')),
      concurrency_policy TEXT NOT NULL DEFAULT 'blocking'
        CHECK(concurrency_policy IN ('blocking', 'detached_read_only')),
      effect_status TEXT NOT NULL CHECK(effect_status IN
        ('pending', 'applied', 'not_applied', 'failed_no_effect', 'unknown')),
      effect_observation TEXT,
      effect_reconciliation TEXT NOT NULL DEFAULT '{"status":"pending"}',
      execution_status TEXT NOT NULL CHECK(execution_status IN
        ('not_started', 'running', 'cancel_requested', 'quiescent', 'fenced', 'hazardous_orphan')),
      execution_epoch INTEGER NOT NULL DEFAULT 0,
      effect_cutoff TEXT,
      grant_manifest TEXT NOT NULL DEFAULT '{"status":"closed","safetyStatus":"current","inventoryComplete":true,"pendingGrantAttemptIds":[],"requiredAuthorityIds":[],"authorityClosures":[]}',
      resource_release TEXT NOT NULL DEFAULT '{"status":"released","requiredLeaseIds":[],"leases":[]}',
      supplemental_inventory TEXT NOT NULL DEFAULT '{"status":"clear","generation":0,"discoveries":[]}',
      authority_fence TEXT,
      owner_boot_id TEXT,
      owner_lease_epoch INTEGER,
      revision INTEGER NOT NULL DEFAULT 1,
      payload TEXT NOT NULL DEFAULT '{}',
      result TEXT,
      claimed_at INTEGER,
      completed_at INTEGER,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL
    );
