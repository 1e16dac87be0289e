-- delete_flow_and_data(p_flow_slug): remove a flow, its queue, and all that it has ever run.
-- Core behaviour: delete_flow_and_data.
-- Locks: the queue's and the archive's tables (ACCESS EXCLUSIVE, by the drop), then the flow's rows.

create function pgflow.delete_flow_and_data(p_flow_slug text)
returns void
language plpgsql
set search_path = ''
as $function$
begin
  perform pgmq.drop_queue(p_flow_slug);

  -- Children first: no foreign key cascades.
  delete from pgflow.step_tasks as task where task.flow_slug = p_flow_slug;
  delete from pgflow.step_states as state where state.flow_slug = p_flow_slug;
  delete from pgflow.runs as run where run.flow_slug = p_flow_slug;
  delete from pgflow.deps as dep where dep.flow_slug = p_flow_slug;
  delete from pgflow.steps as step where step.flow_slug = p_flow_slug;
  delete from pgflow.flows as flow where flow.flow_slug = p_flow_slug;
end
$function$;

comment on function pgflow.delete_flow_and_data(text) is
  'Drops the flow''s queue with its archive and deletes the definition and every run, also active ones.';
