-- Who has held a task of protocol 2, on which message, until when, and what came of it. A claim is a row for good: the
-- next one is another row, and what was settled stays for replays.
create table pgflow.task_claims (
  claim_id uuid not null,
  run_id uuid not null,
  step_slug text not null,
  task_index integer not null,
  claim_number smallint not null,
  queue_name text not null,
  message_id bigint not null,
  worker_id uuid not null,
  max_attempts integer not null,
  when_exhausted text not null,
  timeout_seconds integer not null,
  claimed_at timestamptz not null,
  lease_expires_at timestamptz not null,
  state text not null default 'active',
  revoked_at timestamptz,
  revoked_reason text,
  settled_at timestamptz,
  settlement_kind text,
  disposition text,
  settlement_sha256 bytea,
  settlement_bytes bigint,
  settlement_error text,
  constraint task_claims_pkey primary key (claim_id),
  constraint task_claims_run_id_step_slug_task_index_fkey
    foreign key (run_id, step_slug, task_index) references pgflow.step_tasks (run_id, step_slug, task_index),
  constraint task_claims_address_key unique (run_id, step_slug, task_index, claim_id),
  -- claims_per_task of the contract: with this key the history cannot grow beyond it.
  constraint task_claims_number_key unique (run_id, step_slug, task_index, claim_number),
  constraint claim_number_is_bounded check (claim_number between 1 and 2),
  -- The one policy of the contract, timeout_seconds_min and _max.
  constraint policy_is_supported check (
    max_attempts = 1 and when_exhausted = 'fail' and timeout_seconds between 1 and 3600
  ),
  constraint lease_is_after_claim check (lease_expires_at > claimed_at),
  constraint state_is_valid check (state in ('active', 'revoked', 'settled')),
  constraint revocation_is_complete check (
    (state = 'revoked') = (revoked_at is not null) and (state = 'revoked') = (revoked_reason is not null)
  ),
  constraint revoked_reason_is_valid check (revoked_reason in ('lease_lost', 'run_failed')),
  constraint settlement_is_complete check (
    (state = 'settled') = (settled_at is not null)
    and (state = 'settled') = (settlement_kind is not null)
    and (state = 'settled') = (disposition is not null)
    and (state = 'settled') = (settlement_sha256 is not null)
    and (state = 'settled') = (settlement_bytes is not null)
  ),
  constraint disposition_is_valid check (
    (settlement_kind, disposition) in (
      ('succeeded', 'completed'), ('succeeded', 'oversized'), ('failed', 'failed')
    )
  ),
  constraint error_matches_disposition check (
    (settlement_error is not null) = (disposition is not null and disposition <> 'completed')
  ),
  -- result_bytes, error_bytes and settlement_bytes of the contract.
  constraint oversize_is_told check ((settlement_kind = 'succeeded' and settlement_bytes > 65536) =
    (disposition = 'oversized')),
  constraint settlement_is_bounded check (
    settlement_bytes >= 1
    and octet_length(settlement_sha256) = 32
    and coalesce(octet_length(settlement_error), 0) <= 4096
    and octet_length(settlement_sha256) + coalesce(octet_length(settlement_error), 0) <= 4128
  )
);

-- One owner a task, and one a message.
create unique index task_claims_active_key
  on pgflow.task_claims (run_id, step_slug, task_index) where state = 'active';
create unique index task_claims_active_message_key
  on pgflow.task_claims (queue_name, message_id) where state = 'active';

comment on table pgflow.task_claims is
  'Claims on tasks of protocol 2, at most two a task. Ownership is claim_id, never worker_id. Claims (rows), handler '
  'failures (disposition failed) and lost executors (revoked_reason lease_lost) are counted apart.';
comment on column pgflow.task_claims.worker_id is 'Who says that it claimed; for diagnosis only.';
comment on column pgflow.task_claims.lease_expires_at is
  'From then on the claim may be revoked. Until it is, its first settlement is accepted.';
comment on column pgflow.task_claims.max_attempts is
  'Effective policy at the time of the claim, with when_exhausted and timeout_seconds.';
comment on column pgflow.task_claims.settlement_kind is 'What was reported: succeeded or failed.';
comment on column pgflow.task_claims.disposition is
  'What came of it: completed, failed, or oversized (a success that is too large to keep: the run fails).';
comment on column pgflow.task_claims.settlement_sha256 is
  'SHA-256 of the canonical form of the reported output or error text: identity of a replay.';
comment on column pgflow.task_claims.settlement_bytes is 'Bytes of that canonical form.';
comment on column pgflow.task_claims.settlement_error is
  'The error text, cut when it has more than 4096 bytes; of an oversized result what was wrong with it.';

alter table pgflow.step_tasks
  add column current_claim_id uuid,
  add constraint step_tasks_current_claim_fkey
    foreign key (run_id, step_slug, task_index, current_claim_id)
    references pgflow.task_claims (run_id, step_slug, task_index, claim_id),
  -- result_bytes of the contract. Only tasks of protocol 2 have claims.
  add constraint claimed_output_is_bounded
    check (current_claim_id is null or output is null or octet_length(output::text) <= 65536);

comment on column pgflow.step_tasks.current_claim_id is
  'Protocol 2: the claim that holds this task, or that ended it. NULL before the first claim, after a lost one, and '
  'always with protocol 1.';
