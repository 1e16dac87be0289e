-- Runs of protocol 2: a run speaks it exactly when it has a row here, which is made with the run and goes with it. The
-- row has the identity of the run's definition, and what is left to do. It is a table of its own, not columns of
-- runs: sessions that have start_flow() compiled go on as before.
-- A settlement raises requested_generation; reconciliation catches up with it, chunk by chunk.
create table pgflow.run_work (
  run_id uuid not null,
  flow_slug text not null,
  protocol_version smallint not null default 2,
  definition_sha256 bytea not null,
  state text not null default 'clean',
  requested_generation bigint not null default 0,
  processed_generation bigint not null default 0,
  requested_at timestamptz,
  failure_count integer not null default 0,
  last_failed_at timestamptz,
  last_error_sqlstate text,
  last_error text,
  next_attempt_at timestamptz,
  attention_at timestamptz,
  attention_reason text,
  created_at timestamptz not null default clock_timestamp(),
  constraint run_work_pkey primary key (run_id),
  constraint run_work_run_id_fkey foreign key (run_id) references pgflow.runs (run_id),
  constraint protocol_version_is_known check (protocol_version = 2),
  constraint definition_is_identified check (octet_length(definition_sha256) = 32),
  constraint state_is_valid check (state in ('clean', 'pending', 'retry_wait', 'attention')),
  -- generation_max of the contract: no number that a JSON reader would round, and no wraparound.
  constraint generations_are_ordered check (
    0 <= processed_generation
    and processed_generation <= requested_generation
    and requested_generation <= 9007199254740991
  ),
  constraint state_matches_generations check (
    case state
      when 'clean' then processed_generation = requested_generation
      when 'attention' then true
      else processed_generation < requested_generation
    end
  ),
  constraint request_is_dated check (processed_generation = requested_generation or requested_at is not null),
  constraint retry_is_dated check ((state = 'retry_wait') = (next_attempt_at is not null)),
  -- attention_failures and error_bytes of the contract.
  constraint failures_are_bounded check (
    failure_count between 0 and 5
    and (state <> 'retry_wait' or failure_count between 1 and 4)
    and (failure_count < 5 or state = 'attention')
  ),
  constraint error_is_complete check (
    (last_error is null) = (last_error_sqlstate is null) and (last_error is null) = (last_failed_at is null)
  ),
  constraint error_is_bounded check (
    last_error is null or (octet_length(last_error) <= 4096 and octet_length(last_error_sqlstate) = 5)
  ),
  constraint attention_has_a_reason check (
    (state = 'attention') = (attention_at is not null) and (state = 'attention') = (attention_reason is not null)
  ),
  constraint attention_reason_is_valid check (
    attention_reason in ('claims_exhausted', 'message_missing', 'failures_exhausted')
  )
);

-- What reconciliation looks for.
create index idx_run_work_due on pgflow.run_work (coalesce(next_attempt_at, requested_at))
  where state in ('pending', 'retry_wait');

-- Whether a flow is held.
create index idx_run_work_flow_slug on pgflow.run_work (flow_slug);

comment on table pgflow.run_work is
  'Runs of protocol 2, the bounded A -> B protocol, and the orchestration that is still to be done for them: one row a '
  'run, from its start to its deletion. A run without a row speaks protocol 1.';
comment on column pgflow.run_work.flow_slug is 'That of the run.';
comment on column pgflow.run_work.protocol_version is 'Never changed.';
comment on column pgflow.run_work.definition_sha256 is
  'SHA-256 of the canonical definition that the run began with. Never changed.';
comment on column pgflow.run_work.state is
  'clean: caught up. pending: requests are ahead. retry_wait: the last chunk failed, the next is due at '
  'next_attempt_at. attention: stopped for a person; never cleared by itself.';
comment on column pgflow.run_work.requested_generation is
  'Raised by one by each settlement and explicit request.';
comment on column pgflow.run_work.processed_generation is
  'The request up to which nothing is left to do at once, found under the run''s lock.';
comment on column pgflow.run_work.failure_count is
  'Failed chunks since the last one that committed progress.';
