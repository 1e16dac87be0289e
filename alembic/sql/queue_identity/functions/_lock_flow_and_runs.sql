-- The locks of a deletion. Runs come before their flow: a callback locks its run and, when it adds tasks, by foreign
-- key the flow. Runs that begin between the two are not waited for while we hold the flow: then all locks are given
-- back and taken anew. So no two sessions wait for each other, but for a transaction that starts a run and then calls
-- back for an older run of the same flow. While runs keep beginning this may take long: stop producers first.
create or replace function pgflow._lock_flow_and_runs(p_flow_slug text)
returns boolean
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  complete boolean := false;
begin
  perform pgflow._lock_flow(p_flow_slug);

  while not complete loop
    begin
      -- Compatible with the foreign keys of callbacks and of new runs; not with definition calls.
      perform from pgflow.flows flow where flow.flow_slug = p_flow_slug for no key update;
      if not found then
        return false;
      end if;
      perform from pgflow.runs run where run.flow_slug = p_flow_slug order by run.run_id for update;

      -- No new runs from here on.
      perform from pgflow.flows flow where flow.flow_slug = p_flow_slug for update;
      begin
        perform from pgflow.runs run where run.flow_slug = p_flow_slug order by run.run_id for update nowait;
        complete := true;
      exception
        when lock_not_available then
          complete := false;
      end;
      if not complete then
        raise exception 'a run of flow "%" has begun meanwhile', p_flow_slug using errcode = 'PF000';
      end if;
    exception
      when sqlstate 'PF000' then
        complete := false;
    end;
  end loop;

  return true;
end;
$$;

comment on function pgflow._lock_flow_and_runs(text) is
  'Internal. Lock a flow against everybody, and all its runs. False when there is no such flow. Waits for '
  'callbacks and claims that are under way.';
