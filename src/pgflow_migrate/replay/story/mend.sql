-- What the operator decides after reading the audit: the old flow is not
-- needed, the stray message goes to the archive.
select pgflow.delete_flow_and_data('old_import_');
select pgmq.archive('newsletter', m.msg_id)
from pgmq.q_newsletter m
where not exists (
  select from pgflow.step_tasks t
  where t.flow_slug = 'newsletter' and t.message_id = m.msg_id
);
