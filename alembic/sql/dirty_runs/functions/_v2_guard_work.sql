-- The work row: of a run of protocol 2, stable, its generations only ahead, attention for a person.
create or replace function pgflow._v2_guard_work()
returns trigger
language plpgsql
-- Who writes need not be allowed to see what he would break (grants, row level security).
security definer
set search_path = pg_catalog, pg_temp
-- Where rows are hidden from the owner, too (FORCE ROW LEVEL SECURITY), this is an error, and not a wrong answer.
set row_security = off
as $$
declare
  hold text;
  fault text;
begin
  -- Who may execute this may put it on a table of his own, whose columns are of types whose casts are his code: OLD and
  -- NEW are not looked at before.
  if tg_relid <> 'pgflow.run_work'::regclass then
    raise exception '% is not a table that this guards', tg_relid::regclass
      using errcode = 'trigger_protocol_violated';
  end if;

  if tg_op = 'TRUNCATE' then
    -- Without protocol 2 tables may be truncated as ever, with CASCADE to this one.
    -- A snapshot from before the rows does not show them; the size of the table does.
    if exists (select from pgflow.run_work)
      or (
        current_setting('transaction_isolation') <> 'read committed'
        and pg_relation_size('pgflow.run_work'::regclass) > 0
      )
    then
      raise exception 'pgflow.% is evidence and is not truncated', tg_table_name using errcode = 'PF006';
    end if;
    return null;
  elsif tg_op = 'INSERT' then
    -- A run has its protocol from the start, and never gets another: it has no steps yet.
    -- After the insert, when the foreign key has found the run: before it, one that is committed meanwhile would not be
    -- seen here, but there. Locked, so that who gives it steps or changes it has ended, and looked at after that.
    perform from pgflow.runs run where run.run_id = new.run_id for update;
    select case
        when current_setting('transaction_isolation') <> 'read committed' then 'its steps may be hidden by a snapshot'
        when run.status <> 'started'
          or exists (select from pgflow.step_states state where state.run_id = run.run_id)
          then 'it has begun with protocol 1'
        when run.flow_slug <> new.flow_slug then 'its flow is another'
        when octet_length(run.input::text) > (pgflow._v2_limits() ->> 'input_bytes')::integer
          then 'its input is too large'
        -- The trigger on runs sees updates alone.
        when octet_length(run.output::text) > (pgflow._v2_limits() ->> 'run_output_bytes')::integer
          then 'its output is too large'
      end
    into fault
    from pgflow.runs run
    where run.run_id = new.run_id;
    if fault is not null then
      raise exception 'run % cannot speak protocol 2: %', new.run_id, fault
        using errcode = 'PF006', hint = 'Nothing was changed.';
    end if;
    return null;
  elsif tg_op = 'DELETE' then
    hold := pgflow._v2_hold(old.run_id);
    if hold is not null then
      raise exception 'the work row of run % is kept: %', old.run_id, hold
        using errcode = 'object_not_in_prerequisite_state', hint = 'Nothing was deleted.';
    end if;
    return old;
  end if;

  fault := case
    when (new.run_id, new.flow_slug, new.protocol_version, new.definition_sha256, new.created_at)
      is distinct from (old.run_id, old.flow_slug, old.protocol_version, old.definition_sha256, old.created_at)
      then 'its identity never changes'
    when new.requested_generation not in (old.requested_generation, old.requested_generation + 1)
      then 'requests are raised one by one'
    when new.processed_generation < old.processed_generation then 'what is processed stays processed'
    when old.state = 'attention' and new.state <> 'attention' then 'attention is never cleared by itself'
  end;
  if fault is not null then
    raise exception 'work row of run %: %', old.run_id, fault using errcode = 'PF006', hint = 'Nothing was changed.';
  end if;
  return new;
end;
$$;

comment on function pgflow._v2_guard_work() is
  'Internal, trigger on run_work. PF006 for a run that has begun without it or is of another flow or too large, for '
  'an update that changes identity, lowers or skips generations, or clears attention, and for TRUNCATE; 55000 for a '
  'deletion before it is safe.';
