-- A 0.16.0 database on an ordinary day: three flows with work in flight, and two things that nobody has
-- noticed.
select pgflow.create_flow('orderIntake', timeout => 120);
select pgflow.add_step('orderIntake', 'readMail');
select pgflow.add_step('orderIntake', 'bookLine', array['readMail'], step_type => 'map');
select pgflow.add_step('orderIntake', 'confirm', array['bookLine']);

select pgflow.create_flow('newsletter', max_attempts => 2);
select pgflow.add_step('newsletter', 'draft');
select pgflow.add_step('newsletter', 'send', start_delay => 86400);

select pgflow.create_flow('thumbnails');
select pgflow.add_step('thumbnails', 'shrink', step_type => 'map');

insert into pgflow.workers (worker_id, queue_name, function_name) values
  ('00000000-0000-4000-9000-000000000001', 'orderIntake', 'order-intake'),
  ('00000000-0000-4000-9000-000000000002', 'newsletter', 'newsletter'),
  ('00000000-0000-4000-9000-000000000003', 'thumbnails', 'thumbnails');

-- Thirty orders: workers have been through the queue three times and are busy with another dozen tasks.
select pgflow.start_flow('orderIntake', jsonb_build_object('order', n)) from generate_series(1, 30) n;
do $$
declare
  worker constant uuid := '00000000-0000-4000-9000-000000000001';
begin
  for round in 1..3 loop
    perform pgflow.complete_task(
      task.run_id, task.step_slug, task.task_index,
      case task.step_slug
        when 'readMail' then '["screws", "nails", "glue"]'::jsonb
        else '{"booked": true}'
      end
    )
    from pgflow.start_tasks(
      'orderIntake',
      array(select m.msg_id from pgmq.read('orderIntake', 60, 25) m order by m.msg_id),
      worker
    ) task;
  end loop;
  perform pgflow.start_tasks(
    'orderIntake', array(select m.msg_id from pgmq.read('orderIntake', 60, 12) m order by m.msg_id), worker
  );
end;
$$;

-- Newsletters wait a day to be sent; one draft failed once and is retried, one failed for good.
select pgflow.start_flow('newsletter', '{}', ('00000000-0000-4000-8000-00000000000' || n)::uuid)
from generate_series(1, 4) n;
do $$
declare
  worker constant uuid := '00000000-0000-4000-9000-000000000002';
  task record;
begin
  for task in
    select t.run_id, t.message_id, right(t.run_id::text, 1)::integer as failures
    from pgflow.step_tasks t
    where t.flow_slug = 'newsletter' and t.step_slug = 'draft' and t.run_id::text ~ '[12]$'
  loop
    for attempt in 1..task.failures loop
      perform pgflow.start_tasks('newsletter', array[task.message_id], worker);
      perform pgflow.fail_task(task.run_id, 'draft', 0, 'the model is overloaded');
    end loop;
  end loop;
end;
$$;

-- Four hundred pictures, a quarter of them done.
select pgflow.start_flow('thumbnails', (select jsonb_agg(n) from generate_series(1, 400) n));
select pgflow.complete_task(task.run_id, task.step_slug, task.task_index, '"small"')
from pgflow.start_tasks(
  'thumbnails',
  array(select m.msg_id from pgmq.read('thumbnails', 60, 100) m order by m.msg_id),
  '00000000-0000-4000-9000-000000000003'
) task;

-- What nobody has noticed: an old flow whose slug the new rules refuse, and a message that is no task's.
select pgflow.create_flow('old_import_');
select pgmq.send('newsletter', '{"note": "sent by hand while testing"}');
