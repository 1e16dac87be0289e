-- A store after step 31 whose engine_turns is of an older shape: other statuses, columns that may be null.
-- recorded/older.json has what the Work Center program (Node.js 24.22.3, now 1700000000000) makes of it.

drop table engine_turns;
create table engine_turns (
  id text primary key,
  work_item_id text not null references work_items(id) on delete cascade,
  action_id text not null references actions(id) on delete cascade,
  run_id text not null references runs(id) on delete cascade,
  ordinal integer not null,
  status text not null check (status in (
    'prepared', 'claimed', 'dispatching', 'consumed', 'blocked', 'responded', 'cancelled', 'legacy_imported', 'odd'
  )),
  owner_boot_id text not null,
  lease_epoch integer not null,
  input_entry_ids text not null default '[]',
  message_entry_ids text,
  control_entry_ids text,
  claimed_through_sequence integer,
  consumed_through_sequence integer,
  request_body text,
  request_hash text,
  request_key text not null unique,
  dispatch_attempt integer,
  dispatch_capability text,
  response text,
  response_hash text,
  provider_request_id text,
  claimed_at integer,
  dispatched_at integer,
  responded_at integer,
  consumed_at integer,
  error text,
  created_at integer not null,
  updated_at integer,
  a_column_of_its_own text
);

insert into engine_turns (id, work_item_id, action_id, run_id, ordinal, status, owner_boot_id, lease_epoch, request_key, created_at, updated_at, input_entry_ids, message_entry_ids, error) values
  ('t1', 'w1', 'a1', 'r1', 1, 'prepared', 'b', 3, 'k1', 1, 2, '["e"]', null, null),
  ('t2', 'w1', 'a1', 'r1', 2, 'claimed', 'b', 3, 'k2', 1, null, '["e"]', '["m"]', null),
  ('t3', 'w1', 'a1', 'r1', 3, 'dispatching', 'b', 3, 'k3', 1, 2, '[]', null, 'an error of its own'),
  ('t4', 'w1', 'a1', 'r1', 4, 'consumed', 'b', 3, 'k4', 1, 2, '[]', null, null),
  ('t5', 'w1', 'a1', 'r1', 5, 'blocked', 'b', 3, 'k5', 1, 2, '[]', null, null),
  ('t6', 'w1', 'a1', 'r1', 6, 'responded', 'b', 3, 'k6', 1, 2, '[]', null, 'kept'),
  ('t7', 'w1', 'a1', 'r1', 7, 'cancelled', 'b', 3, 'k7', 1, 2, '[]', null, null),
  ('t8', 'w1', 'a1', 'r1', 8, 'legacy_imported', 'b', 3, 'k8', 1, 2, '[]', null, null),
  ('t9', 'w1', 'a1', 'r2', 1, 'odd', 'b', 4, 'k9', 1, 2, '[]', null, null);
update engine_turns set request_body = '{"q":1}', request_hash = 'rh', claimed_through_sequence = 4,
  consumed_through_sequence = 5, dispatch_attempt = 6, dispatch_capability = 'idempotent',
  control_entry_ids = '["c"]', response = 'r', response_hash = 'sh', provider_request_id = 'p',
  claimed_at = 7, dispatched_at = 8, responded_at = 9, consumed_at = 10 where id = 't6';

insert into action_entries (id, work_item_id, action_id, sequence, kind, status, source_key, engine_turn_id, created_at, updated_at) values
  ('e1', 'w1', 'a1', 11, 'message', 'bound', 's1', 't2', 1, 1),
  ('e2', 'w1', 'a1', 12, 'control', 'pending', 's2', null, 1, 1),
  ('e3', 'w1', 'a1', 13, 'message', 'bound', 's3', 'a turn that is gone', 1, 1);
insert into operations (id, work_item_id, engine_turn_id, operation_type, idempotency_key, replay_policy, effect_status, execution_status, created_at, updated_at) values
  ('o1', 'w1', 't3', 'shell', 'i1', 'safe', 'pending', 'running', 1, 1),
  ('o2', 'w1', null, 'shell', 'i2', 'safe', 'pending', 'running', 1, 1);
