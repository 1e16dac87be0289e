-- A definition stays as it is while a run of protocol 2 needs it, whoever writes: functions, or SQL by hand.
-- A start writes to the rows that it relies on (_v2_hold_definition), so whoever changes or deletes one of them has
-- waited for it, or it waits for him: no other lock is needed, and none is taken while a row is locked. A new row has
-- nothing to wait at; that of its flow stands for it, as in add_step().
create or replace function pgflow._v2_guard_definition()
returns trigger
language plpgsql
-- Who writes need not be allowed to see what he would break (grants, row level security).
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
  flows_of text[];
  inserted jsonb;
  flow_of text;
  hold text;
begin
  -- Who may execute this may put it on a table of his own, whose columns are of types whose casts are his code: OLD and
  -- NEW are not looked at before.
  if tg_relid not in ('pgflow.flows'::regclass, 'pgflow.steps'::regclass, 'pgflow.deps'::regclass) then
    raise exception '% is not a table that this guards', tg_relid::regclass
      using errcode = 'trigger_protocol_violated';
  end if;

  if tg_op = 'UPDATE' and to_jsonb(old) - 'created_at' = to_jsonb(new) - 'created_at' then
    return new;
  end if;
  flows_of := case tg_op
    when 'INSERT' then array[new.flow_slug]
    when 'DELETE' then array[old.flow_slug]
    -- An update may move a row from one flow to another.
    else array(select distinct moved.slug from unnest(array[old.flow_slug, new.flow_slug]) as moved (slug) order by 1)
  end;
  foreach flow_of in array flows_of loop
    if tg_op = 'INSERT' or (tg_op = 'UPDATE' and flow_of <> old.flow_slug) then
      perform from pgflow.flows flow where flow.flow_slug = flow_of for no key update;
    end if;
    hold := pgflow._v2_flow_hold(flow_of);
    exit when hold is not null;
  end loop;
  -- An insert of what is there already changes nothing: add_step() does that on purpose.
  if hold is not null and tg_op = 'INSERT' then
    -- As JSON, because not every table has the columns.
    inserted := to_jsonb(new);
    if tg_table_name = 'steps' then
      if exists (
        select
        from pgflow.steps step
        where step.flow_slug = new.flow_slug and step.step_slug = inserted ->> 'step_slug'
      ) then
        return new;
      end if;
    elsif exists (
      select
      from pgflow.deps dep
      where (dep.flow_slug, dep.dep_slug, dep.step_slug)
        = (new.flow_slug, inserted ->> 'dep_slug', inserted ->> 'step_slug')
    ) then
      return new;
    end if;
  end if;
  if hold is not null then
    raise exception 'the definition of flow "%" is frozen: %', flow_of, hold
      using errcode = 'object_not_in_prerequisite_state', hint = 'Nothing was changed.';
  end if;
  return case when tg_op = 'DELETE' then old else new end;
end;
$$;

comment on function pgflow._v2_guard_definition() is
  'Internal, trigger on flows, steps and deps. 55000 for a structural change, a route and an option included, while '
  'a run of protocol 2 holds the flow (_v2_flow_hold).';
