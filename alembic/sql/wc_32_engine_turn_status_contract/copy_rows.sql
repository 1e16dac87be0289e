-- Every turn with its status in the contract's words. Of a request that was on its way nobody knows the
-- outcome, so it becomes 'unknown' and says why. :now is the time of the upgrade, for rows without their own.
-- The words are written out on both sides: an older table may compare without regard to case.

insert into engine_turns_new (
  id, work_item_id, action_id, run_id, ordinal, status, owner_boot_id, lease_epoch,
  input_entry_ids, message_entry_ids, control_entry_ids,
  claimed_through_sequence, consumed_through_sequence,
  request_body, request_hash, request_key, dispatch_attempt, dispatch_capability,
  response, response_hash, provider_request_id,
  claimed_at, dispatched_at, responded_at, consumed_at, error, created_at, updated_at
)
select
  id, work_item_id, action_id, run_id, ordinal,
  case status
    when 'prepared' then 'prepared'
    when 'responded' then 'responded'
    when 'consumed' then 'responded'
    when 'cancelled' then 'cancelled'
    when 'legacy_imported' then 'legacy_imported'
    else 'unknown'
  end,
  owner_boot_id, lease_epoch,
  input_entry_ids, coalesce(message_entry_ids, input_entry_ids, '[]'), coalesce(control_entry_ids, '[]'),
  coalesce(claimed_through_sequence, 0), coalesce(consumed_through_sequence, 0),
  coalesce(request_body, '{}'), coalesce(request_hash, ''), request_key,
  coalesce(dispatch_attempt, 0), coalesce(dispatch_capability, 'unknown'),
  response, response_hash, provider_request_id,
  claimed_at, dispatched_at, responded_at, consumed_at,
  case
    when status in ('claimed', 'dispatching', 'blocked') then
      coalesce(error, 'Legacy provider dispatch outcome is unknown after schema upgrade')
    else error
  end,
  created_at, coalesce(updated_at, :now)
from engine_turns;
