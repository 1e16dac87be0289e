-- Refuse, SQLSTATE PF008, while there is a run of protocol 2, which queue_identity could neither carry on nor keep
-- apart. Runs after the fence, so none begins any more. The new tables are not behind the fence: whoever reads one may
-- be waiting for us, so they are not waited for.
lock table pgflow.run_work, pgflow.task_claims in access exclusive mode nowait;

-- Rows that are hidden from us (FORCE ROW LEVEL SECURITY) would be dropped unseen: this makes an error of them.
set local row_security = off;

do $refuse$
declare
  run_count constant bigint := (select count(*) from pgflow.run_work);
begin
  if run_count > 0 then
    raise exception using
      errcode = 'PF008',
      message = format(
        'there %s of protocol 2', case run_count when 1 then 'is 1 run' else 'are ' || run_count || ' runs' end
      ),
      hint = 'Nothing was changed. queue_identity knows protocol 1 alone: delete these runs first '
        '(delete_flow_and_data), once they may be deleted, or stay at dirty_runs.';
  end if;
end;
$refuse$;
