-- A 0.16.0 (or 0.15.0) database at work: mixed case, a map, waiting, retried and failed tasks, and tasks without a message.
select pgflow.create_flow('orderIntake', max_attempts => 2, timeout => 60);
select pgflow.add_step('orderIntake', 'readMail');
select pgflow.add_step('orderIntake', 'bookItem', array['readMail'], step_type => 'map');
select pgflow.add_step('orderIntake', 'report', array['bookItem']);

select pgflow.create_flow('newsletter', max_attempts => 1);
select pgflow.add_step('newsletter', 'draft');
select pgflow.add_step('newsletter', 'send', array['draft'], start_delay => 86400);

select pgflow.create_flow('without_steps');

-- Stopped, so that they do not count as live.
insert into pgflow.workers (worker_id, queue_name, function_name, stopped_at) values
  ('00000000-0000-4000-9000-000000000001', 'orderIntake', 'orders', now()),
  ('00000000-0000-4000-9000-000000000002', 'newsletter', 'newsletter', now());
select pgflow.track_worker_function('orders');

select pgflow.start_flow('orderIntake', '{}', ('00000000-0000-4000-8000-0000000000' || lpad(n::text, 2, '0'))::uuid)
from generate_series(1, 12) n;
select pgflow.complete_task(task.run_id, 'readMail', 0, '["screws", "nails", "glue"]')
from pgflow.start_tasks('orderIntake', array(select generate_series(1, 8)), '00000000-0000-4000-9000-000000000001') task;
select pgflow.complete_task(task.run_id, 'bookItem', task.task_index, 'true')
from pgflow.start_tasks('orderIntake', array(select generate_series(13, 24)), '00000000-0000-4000-9000-000000000001') task;
select pgflow.start_tasks('orderIntake', array[25, 26, 27], '00000000-0000-4000-9000-000000000001');

select pgflow.start_flow('newsletter', '{}', ('00000000-0000-4000-8000-0000000001' || lpad(n::text, 2, '0'))::uuid)
from generate_series(1, 6) n;
select pgflow.start_tasks('newsletter', array[1, 2, 3], '00000000-0000-4000-9000-000000000002');
select pgflow.complete_task('00000000-0000-4000-8000-000000000101', 'draft', 0, '{"text": "done"}');
select pgflow.fail_task('00000000-0000-4000-8000-000000000102', 'draft', 0, 'the model is overloaded');
select pgflow.fail_task('00000000-0000-4000-8000-000000000103', 'draft', 0, 'the model is overloaded');

-- Old archives were cleaned up by hand: their tasks stay, without a message id.
with forgotten as (
  delete from pgmq."a_newsletter" returning msg_id
)
update pgflow.step_tasks task set message_id = null
from forgotten
where task.flow_slug = 'newsletter' and task.message_id = forgotten.msg_id;
