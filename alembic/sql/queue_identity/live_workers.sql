-- Refuse while workers of the old release are at work: a callback that waits behind the upgrade would end in the old
-- function's body, and fail once; and old workers are not made for the new schema.
-- A worker that is busy with a batch sends no heartbeat, so one that is younger than half a minute still counts.
-- pgflow_migrate.allow_live_workers, transaction-local, set by the caller, overrules.
do $live_workers$
declare
  workers text[];
begin
  if coalesce(nullif(current_setting('pgflow_migrate.allow_live_workers', true), ''), 'off')::boolean then
    return;
  end if;

  begin
    select array_agg(
      json_build_object(
        'worker_id', worker.worker_id,
        'function_name', worker.function_name,
        'queue_name', worker.queue_name,
        'start_mode', coalesce(registered.start_mode, 'unknown'),
        'last_heartbeat_at', case
          when isfinite(worker.last_heartbeat_at)
            then to_char(worker.last_heartbeat_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US+00:00')
          else worker.last_heartbeat_at::text
        end,
        'heartbeat_age', case
          when isfinite(worker.last_heartbeat_at)
            then extract(epoch from clock_timestamp() - worker.last_heartbeat_at)
        end
      )::text
      order by worker.function_name, worker.worker_id
    )
    into workers
    from pgflow.workers worker
    left join pgflow.worker_functions registered on registered.function_name = worker.function_name
    where worker.stopped_at is null
      and worker.last_heartbeat_at
        > clock_timestamp() - greatest(coalesce(registered.debounce, interval '6 seconds'), interval '30 seconds');

    -- Leaving by an exception gives the locks of the reading back: the fence takes its own, and upgrades none.
    raise exception using errcode = 'PF000';
  exception
    when sqlstate 'PF000' then
      null;
  end;

  if cardinality(workers) > 0 then
    raise exception using
      errcode = 'PF003',
      message = format(
        '%s %s at work', cardinality(workers), case cardinality(workers) when 1 then 'worker is' else 'workers are' end
      ),
      detail = array_to_string(workers, chr(10)),
      hint = 'Nothing was changed. Drain them, then repeat: set enabled = false in pgflow.worker_functions, so that '
        'HTTP workers are not started again, and deprecated_at = now() in pgflow.workers; end process workers with '
        'SIGTERM; wait until they have stopped.';
  end if;
end;
$live_workers$;
