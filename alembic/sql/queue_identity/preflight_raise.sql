-- Refuse the upgrade when preflight_findings.sql, run just before, found anything of severity error.
--
-- One exception, SQLSTATE PF001, names everything at once: its detail has a line for each finding, a JSON
-- object with the columns of the report, so that programs need not parse prose. That queue identity is here
-- already stands in nobody's way, but whoever runs the upgrade all the same is told so, instead of the first
-- statement that fails.
do $raise$
declare
  findings_cursor refcursor := 'pgflow_migrate_findings';
  finding record;
  blocking integer := 0;
  lines text[] := '{}';
begin
  loop
    fetch findings_cursor into finding;
    exit when not found;
    if finding.code = 'already-upgraded' then
      raise exception using
        errcode = 'PF001',
        message = 'queue identity is here already',
        hint = 'Nothing was changed. pgflow-migrate status says which revision this is, and what is pending.';
    end if;
    continue when finding.severity <> 'error';
    blocking := blocking + 1;
    lines := lines || json_build_object(
      'severity', finding.severity, 'code', finding.code, 'flow_slug', finding.flow_slug,
      'step_slug', finding.step_slug, 'queue_name', finding.queue_name, 'count', finding.count,
      'samples', finding.samples, 'hint', finding.hint
    )::text;
  end loop;
  close findings_cursor;

  if blocking > 0 then
    raise exception using
      errcode = 'PF001',
      message = format(
        '%s %s in the way of queue identity', blocking,
        case blocking when 1 then 'finding stands' else 'findings stand' end
      ),
      detail = array_to_string(lines, chr(10)),
      hint = 'Mend each finding as its hint says (pgflow-migrate docs findings has more), then repeat. '
        'Nothing was changed.';
  end if;
end;
$raise$;
