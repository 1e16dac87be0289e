-- What to think of a message that no task owns. In doubt it is pgflow's own: such a message is kept for a person.
create or replace function pgflow._message_fault(p_message jsonb)
returns text
language sql
stable
set search_path = pg_catalog, pg_temp
as $$
  select case
    -- A key at any depth, and in text that is JSON itself: quoted, if with backslashes, and followed by a colon.
    when p_message is null
      or p_message::text !~ '"(flow_slug|run_id|step_slug|task_index)[^[:alnum:]_:"]*"[[:space:]]*:' then null
    when exists (
      select
      from pgflow.step_tasks task
      where task.run_id = case
          when p_message ->> 'run_id' ~* '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
            then (p_message ->> 'run_id')::uuid
        end
        and task.step_slug = p_message ->> 'step_slug'
        and task.task_index::text = p_message ->> 'task_index'
    ) then 'wrong_route'
    else 'missing_task'
  end;
$$;

comment on function pgflow._message_fault(jsonb) is
  'Internal. For a message without a task of its own: NULL when it is foreign (nowhere in its body there is a '
  'key flow_slug, run_id, step_slug or task_index); wrong_route when its body addresses a task that has another '
  'message; else missing_task.';
