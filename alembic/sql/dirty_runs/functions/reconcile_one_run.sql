-- One run, one chunk, one transaction. What to do is read from the rows, under the locks, every time; nothing is
-- remembered between chunks but what is committed.
-- Locks: run (never waited for), work, step states, tasks. Those of run and work are taken outside the block that a
-- failed chunk rolls back, so that its error is recorded under them.
create or replace function pgflow.reconcile_one_run(run_id uuid default null)
returns jsonb
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  limits constant jsonb := pgflow._v2_limits();
  -- One moment for all candidates, so that the index is read up to there: what is due later is not looked at.
  looked_at constant timestamptz := clock_timestamp();
  candidate uuid;
  passed_over integer := 0;
  run pgflow.runs;
  work pgflow.run_work;
  chunk jsonb;
  failed_state text;
  failed_text text;
begin
  if coalesce(current_setting('pgflow.reconciled', true), '') <> '' then
    return jsonb_build_object('outcome', 'rejected', 'reason', 'one_chunk_per_transaction');
  end if;

  if reconcile_one_run.run_id is not null then
    if not exists (select from pgflow.runs r where r.run_id = reconcile_one_run.run_id) then
      return jsonb_build_object('outcome', 'unknown', 'reason', 'run');
    elsif not exists (select from pgflow.run_work w where w.run_id = reconcile_one_run.run_id) then
      return jsonb_build_object('outcome', 'wrong_protocol', 'protocol_version', 1);
    end if;
  end if;

  -- Candidates are read without any claim on them; what counts is looked at again under the lock.
  for candidate in
    select reconcile_one_run.run_id where reconcile_one_run.run_id is not null
    union all
    (
      select due.run_id
      from pgflow.run_work due
      where reconcile_one_run.run_id is null
        and due.state in ('pending', 'retry_wait')
        and coalesce(due.next_attempt_at, due.requested_at) <= looked_at
      order by coalesce(due.next_attempt_at, due.requested_at)
      limit (limits ->> 'candidate_rows')::integer
    )
  loop
    select r.* into run from pgflow.runs r where r.run_id = candidate for update skip locked;
    exit when found;
    passed_over := passed_over + 1;
  end loop;
  if run.run_id is null then
    return jsonb_build_object('outcome', case when passed_over > 0 then 'busy' else 'idle' end, 'busy', passed_over);
  end if;

  perform set_config('pgflow.reconciled', run.run_id::text, true);
  select w.* into strict work from pgflow.run_work w where w.run_id = run.run_id for update;
  if work.state = 'attention' then
    return jsonb_build_object('outcome', 'attention', 'run_id', run.run_id, 'reason', work.attention_reason);
  elsif work.state = 'clean' then
    return jsonb_build_object('outcome', 'idle', 'run_id', run.run_id, 'busy', passed_over);
  elsif work.next_attempt_at > clock_timestamp() then
    return jsonb_build_object(
      'outcome', 'waiting', 'run_id', run.run_id, 'next_attempt_at', work.next_attempt_at
    );
  end if;

  begin
    chunk := pgflow._v2_chunk(run);
    update pgflow.run_work w
    set state = case when chunk ->> 'outcome' = 'clean' then 'clean' else 'pending' end,
        -- The generation that was captured with the lock: no settlement can have come since.
        processed_generation = case
          when chunk ->> 'outcome' = 'clean' then work.requested_generation
          else w.processed_generation
        end,
        requested_at = case when chunk ->> 'outcome' = 'clean' then null else w.requested_at end,
        failure_count = 0,
        next_attempt_at = null
    where w.run_id = run.run_id;
  exception
    -- OTHERS leaves failed assertions out.
    when others or assert_failure then
      get stacked diagnostics failed_state = returned_sqlstate, failed_text = message_text;
  end;
  if failed_state is null then
    return chunk || jsonb_build_object('run_id', run.run_id);
  end if;

  -- The graph is as before the chunk; this is the same transaction, and commits.
  update pgflow.run_work w
  set failure_count = w.failure_count + 1,
      last_failed_at = clock_timestamp(),
      last_error_sqlstate = failed_state,
      last_error = pgflow._v2_bounded_error(failed_text),
      state = case when over.is_over then 'attention' else 'retry_wait' end,
      attention_at = case when over.is_over then clock_timestamp() end,
      attention_reason = case when over.is_over then 'failures_exhausted' end,
      next_attempt_at = case
        when not over.is_over
        then clock_timestamp() + make_interval(secs => (limits ->> 'backoff_seconds')::integer * 2 ^ work.failure_count)
      end
  from (select work.failure_count + 1 >= (limits ->> 'attention_failures')::integer) as over (is_over)
  where w.run_id = run.run_id
  returning w.* into work;
  return jsonb_build_object(
    'outcome', 'failed', 'run_id', run.run_id, 'state', work.state, 'sqlstate', work.last_error_sqlstate,
    'error', work.last_error, 'failure_count', work.failure_count, 'next_attempt_at', work.next_attempt_at
  );
end;
$$;

comment on function pgflow.reconcile_one_run(uuid) is
  'Internal protocol. Reconcile one run of protocol 2 (the given one, or the first that is due and not locked) by one '
  'chunk; a second call in the same transaction is rejected. Outcomes: dispatched (step_slug), finalized, clean (the '
  'captured generation is processed), idle, busy, waiting, attention, failed (the chunk was rolled back, its error and '
  'the next attempt recorded), unknown, wrong_protocol, rejected.';
