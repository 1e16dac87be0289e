-- What must hold of runs of protocol 2, at any time: what does not, as rows of the cursor pgflow_migrate_violations.
-- The revision runs this text before it commits, pgflow-migrate verify in a read-only snapshot. Columns as in
-- queue_identity/invariants.sql.
do $invariants$
declare
  sample_limit constant integer := 20;
  caller_search_path constant text := pg_catalog.current_setting('search_path');
  violations_cursor refcursor := 'pgflow_migrate_violations';
begin
  perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);

  open violations_cursor for
    with broken (what, thing, hint) as (
      select
        'v2-work', work.run_id::text,
        'A work row is of the flow of its run. Restore it from a backup.'
      from pgflow.run_work work
      left join pgflow.runs run on run.run_id = work.run_id
      where run.flow_slug is distinct from work.flow_slug
      union all
      select
        'v2-claim', concat_ws('/', task.run_id, task.step_slug, task.task_index),
        'A started task of protocol 2 points at its active claim, which has its queue and message; a task in any other '
        'state has no active claim. Nobody but the functions of protocol 2 may write these columns.'
      from pgflow.run_work work
      join pgflow.step_tasks task on task.run_id = work.run_id
      left join pgflow.task_claims claim
        on (claim.run_id, claim.step_slug, claim.task_index) = (task.run_id, task.step_slug, task.task_index)
        and claim.state = 'active'
      where (
          (task.status = 'started') is distinct from (claim.claim_id is not null)
          or (task.status = 'started' and task.current_claim_id is distinct from claim.claim_id)
          or (claim.queue_name, claim.message_id) <> (task.queue_name, task.message_id)
        )
      union all
      select
        'v2-claim', claim.claim_id::text,
        'A claim belongs to a run with a work row. That row is lost, or somebody has written claims by hand.'
      from pgflow.task_claims claim
      where not exists (select from pgflow.run_work work where work.run_id = claim.run_id)
      union all
      select
        'v2-run-end', run.run_id::text,
        'A run of protocol 2 that is over has no unfinished task. Find out what wrote to its tasks.'
      from pgflow.run_work work
      join pgflow.runs run on run.run_id = work.run_id
      where run.status <> 'started'
        and exists (
          select from pgflow.step_tasks task where task.run_id = run.run_id and task.status in ('queued', 'started')
        )
    ),
    numbered as (
      select b.*, row_number() over (partition by b.what, b.hint order by b.thing collate "C") as number
      from broken b
    )
    select
      n.what as "check", 'protocol 2' as subject, count(*) as count,
      array_agg(n.thing order by n.number) filter (where n.number <= sample_limit) as samples, n.hint
    from numbered n
    group by n.what, n.hint
    order by n.what collate "C", n.hint collate "C";

  perform set_config('search_path', caller_search_path, true);
end;
$invariants$;
