-- The start-up call of 0.16.0 workers. Without it they fail (42883) before they have registered or read a message.
drop function pgflow.ensure_flow_compiled(text, jsonb);
