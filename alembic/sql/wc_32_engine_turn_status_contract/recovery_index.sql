-- Indexes and triggers go with the table that they are on.

CREATE INDEX idx_engine_turns_recovery ON engine_turns(status, updated_at);
