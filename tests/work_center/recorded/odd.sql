-- Values that people and programs have left in stores, each in a row of its own; recorded/odd.json has what
-- the Work Center program (Node.js 24.22.3, now 1700000000000, source version 22) makes of them.

insert into work_items (id, messages, created_at, updated_at) values
  ('no-messages', null, 1, 2),
  ('empty-text', '', 1, 2),
  ('malformed', '[{"id":"m1"}', 1, 2),
  ('object', '{"id":"m1"}', 1, 2),
  ('number', 5, 1, 2),
  ('bytes', x'5b5d', 1, 2),
  ('not-messages', '[null,true,"text",7,[],{}]', 1, 2),
  ('identities', '[{"id":0,"turnId":"t"},{"id":7},{"id":"7"},{"id":[1,[2,null]]},{"id":{"a":1}},{"id":true},{"role":false},{"role":12}]', 1, 2),
  ('same-twice', '[{"id":"m"},{"turnId":"m"},{"text":"x","role":"user"},{"role":"user","text":"x"}]', 1, 2),
  ('times', '[{"createdAt":0},{"createdAt":-5},{"createdAt":"17"},{"createdAt":" 0x10 "},{"createdAt":true},{"createdAt":[9]},{"createdAt":1.5},{"createdAt":1e400},{"createdAt":"soon","updatedAt":"3e2"},{"createdAt":{}},{"updatedAt":-0.0}]', 3, 4),
  ('zero-times', '[{"id":"m"}]', 0, null),
  ('text-times', '[{"id":"m"}]', 'yesterday', '12'),
  ('negative-times', '[{"id":"m"}]', -7, -8),
  ('numbers', '[{"id":"n","a":1e21,"b":1e-7,"c":0.000001,"d":123456789012345680000,"e":9007199254740993,"f":-0,"g":1e999,"h":5e-324}]', 1, 2),
  ('keys', '[{"id":"k","b":1,"a":{"10":1,"9":2,"01":3,"é":4,"":5,"\ud83d\ude00":6,"\uffee":7,"__proto__":8},"a2":[{"z":1,"y":2}],"b":9}]', 1, 2),
  ('unicode', '[{"id":"\ud83d","text":"a\u0000b \u2028 \ud800 😀","role":"ü"}]', 1, 2),
  ('attachments', '[{"id":1,"attachments":[{"2":1,"b":1,"1":2,"a":-0}]},{"id":2,"attachments":{"a":1}},{"id":3,"attachments":"x"},{"id":4,"attachments":[[],null,1e400]}]', 1, 2),
  ('columns', '[{"id":1,"role":3,"status":2.5,"turnId":4,"text":9},{"id":2,"role":true,"status":true,"turnId":true},{"id":3,"role":"","status":"","turnId":""}]', 1, 2);

insert into actions (id, work_item_id, status, generation, spec_hash) values
  ('ready', 'no-messages', 'ready', 2, 'h'),
  ('done', 'no-messages', 'done', 'text', ''),
  ('capital', 'no-messages', 'Ready', null, null),
  ('numbers', 'no-messages', 'ready', 1.5, 7);

insert into runs (id, action_id, work_item_id, status, started_at, ended_at, owner_boot_id, lease_epoch) values
  ('late', 'ready', 'no-messages', 'completed', 9, 12, 'boot', 3),
  ('early', 'ready', 'no-messages', 'failed', 2, null, 'boot', null),
  ('same-time', 'ready', 'no-messages', 'running', 9, null, '', 4),
  ('text-epoch', 'done', 'no-messages', 'running', null, null, 'boot', ' 12 '),
  ('word-epoch', 'done', 'no-messages', null, 'noon', null, 'boot', 'x'),
  ('bytes-epoch', 'done', 'no-messages', '', 0, 0, 'boot', x'35'),
  ('no-action', null, 'no-messages', 'completed', 1, 0, 'boot', 1),
  ('no-action-either', null, 'no-messages', 'completed', 1, 1, 'boot', 1);

insert into events (id, work_item_id, action_id, type, data, created_at, action_generation) values
  (1, 'no-messages', 'ready', 'action.input_added', '{"text":"t1"}', 5, 1),
  (2, 'no-messages', 'ready', 'action.input_added', '{"text":"t2"}', 0, 1),
  (3, 'no-messages', 'ready', 'action.input_added', '{"text":"t3"}', null, 1),
  (4, 'no-messages', 'done', 'action.input_added', '{}', 6, 1),
  (5, 'no-messages', 'done', 'action.input_added', '{}', 6, 1),
  (6, 'no-messages', 'done', 'action.input_added', '{}', 6, 1),
  (7, 'no-messages', 'done', 'action.input_added', '{}', 'noon', 1),
  (8, 'no-messages', 'ready', 'action.input_added', '{}', 6, 1),
  (20, 'no-messages', 'ready', 'action.input_added', '{"text":"kept","inputId":"i","attachments":[{"b":1,"a":2}]}', 7, 1),
  (21, 'no-messages', 'done', 'action.input_added', '{"text":5,"inputId":0,"attachments":{}}', 7, 0),
  (22, 'no-messages', 'capital', 'action.input_added', 'malformed', 7, null),
  (23, 'no-messages', 'numbers', 'action.input_added', '"text"', 0, 'g'),
  (24, 'no-messages', 'numbers', 'action.input_added', '[1]', -3, 1.5),
  (25, 'no-messages', 'numbers', 'action.input_added', '{"inputId":{"b":[],"a":"\ud800"}}', 7, x'07'),
  (26, 'no-messages', 'ready', 'action.done', '{"text":"another type"}', 7, 1),
  (27, 'no-messages', 'gone', 'action.input_added', '{"text":"no such action"}', 7, 1),
  (28, 'no-messages', null, 'action.input_added', '{"text":"no action"}', 7, 1);

insert into pending_action_inputs
  (event_id, action_id, work_item_id, run_id, text, attachments, consumed_at, superseded_at)
values
  (1, 'ready', 'no-messages', 'late', 't1', '[]', 20, null),
  (2, 'ready', 'no-messages', 'late', '', null, 0, null),
  (3, 'ready', 'no-messages', null, null, '', 21, null),
  (4, 'done', 'no-messages', 'text-epoch', 5, 0, 22, null),
  (5, 'done', 'no-messages', 'word-epoch', x'00', '[1]', 23, 24),
  (6, 'done', 'no-messages', 'bytes-epoch', 't6', '[]', 'noon', null),
  (7, 'done', 'no-messages', 'word-epoch', 't7', '[]', 25, null),
  (8, 'ready', 'no-messages', 'same-time', 't8', '[]', 26, null),
  (99, 'ready', 'no-messages', 'late', 'no such event', '[]', 27, null);
