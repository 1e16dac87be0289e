-- The one path on which pgflow creates a queue. The caller holds the flow's lock (_lock_flow).
create or replace function pgflow._provision_queue(p_flow_slug text, p_queue_name text)
returns void
language plpgsql
volatile
set search_path = pg_catalog, pg_temp
as $$
declare
  collided boolean := false;
begin
  if pgflow._queue_is_provisioned(p_flow_slug, p_queue_name) then
    return;
  end if;

  begin
    perform pgmq.create(p_queue_name);
  exception
    -- How PGMQ loses against a creation that was not committed when we looked.
    when unique_violation or duplicate_table or undefined_table then
      collided := true;
  end;

  -- Or PGMQ waited, and created nothing because everything was there already. What we have created bears our
  -- transaction's time; and who creates a table holds it exclusively from the start, who finds one does not.
  if not collided then
    select count(*) <> 2 or not exists (
      select from pgmq.meta meta where lower(meta.queue_name) = p_queue_name and meta.created_at = now()
    )
    into collided
    from pg_catalog.pg_locks held
    join pg_catalog.pg_class relation on relation.oid = held.relation
    join pg_catalog.pg_namespace schema on schema.oid = relation.relnamespace
    where held.pid = pg_catalog.pg_backend_pid()
      and held.locktype = 'relation'
      and held.mode = 'AccessExclusiveLock'
      and held.granted
      and held.database = (select this.oid from pg_catalog.pg_database this where this.datname = current_database())
      and schema.nspname = 'pgmq'
      and relation.relname in ('q_' || p_queue_name, 'a_' || p_queue_name);
  end if;

  if collided then
    raise exception 'queue "%" is not flow "%"''s own: somebody else created it at the same moment',
      p_queue_name, p_flow_slug
      using errcode = 'object_not_in_prerequisite_state',
            hint = 'Nothing was changed. Give the flow another slug, or drop the queue if nobody needs it.';
  end if;
end;
$$;

comment on function pgflow._provision_queue(text, text) is
  'Internal. Create a flow''s generated queue under its canonical name, unless it exists already and is the '
  'flow''s own. Errors as _queue_is_provisioned, also for a queue that appears while this call runs; then '
  'nothing is changed.';
