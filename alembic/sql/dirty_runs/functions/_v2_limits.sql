-- Every number of the contract that SQL enforces, once. The constraints of the tables repeat what they need.
create or replace function pgflow._v2_limits()
returns jsonb
language sql
immutable
parallel safe
set search_path = pg_catalog, pg_temp
as $$
  select jsonb '{
    "contract_version": 1,
    "protocol_version": 2,
    "steps": 2,
    "edges": 1,
    "tasks": 2,
    "max_attempts": 1,
    "definition_bytes": 768,
    "input_bytes": 65536,
    "result_bytes": 65536,
    "run_output_bytes": 65670,
    "error_bytes": 4096,
    "settlement_bytes": 4128,
    "timeout_seconds_min": 1,
    "timeout_seconds_max": 3600,
    "start_delay_seconds_max": 3600,
    "lease_grace_seconds": 30,
    "message_ids_per_call": 1,
    "claims_per_task": 2,
    "transitions_per_chunk": 1,
    "examined_rows_per_chunk": 10,
    "candidate_rows": 16,
    "generation_max": 9007199254740991,
    "backoff_seconds": 1,
    "attention_failures": 5,
    "replay_horizon_seconds": 86400
  }';
$$;

comment on function pgflow._v2_limits() is
  'Internal. The limits of the bounded A -> B protocol, as the documented contract has them: bytes of canonical JSON '
  'or UTF-8 text, seconds, counts.';
