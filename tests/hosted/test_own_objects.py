"""What users have made on and around pgflow's tables is after the upgrade as it was before, and works."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.releases.identify import identify
from pgflow_migrate.replay import catalogue

Session = psycopg.Connection[Any]

READER = "hosted_reader"

OBJECTS = f"""
  create schema mine;

  create view mine.tasks as select * from pgflow.step_tasks;
  create view pgflow.my_joined as select * from pgflow.steps natural join pgflow.step_tasks;
  create view mine.with_queue as
    select step_slug, queue_name
    from pgflow.step_tasks join pgmq.meta on lower(queue_name) = lower(flow_slug);
  create view mine.whole_row as select t as task from pgflow.step_tasks t;
  create materialized view mine.counted as select flow_slug, count(*) from pgflow.step_tasks group by 1;
  create materialized view pgflow.my_copy as select * from pgflow.step_tasks;

  create table mine.log (what text, at timestamptz default now());
  create function mine.note() returns trigger language plpgsql as $$
    begin insert into mine.log values (tg_table_name || ' ' || tg_op); return new; end $$;
  create trigger my_note after insert or update of status on pgflow.step_tasks
    for each row when (new.status is not null) execute function mine.note();
  create trigger my_note after update on pgflow.runs referencing new table as changed
    for each statement execute function mine.note();
  alter table pgflow.step_tasks enable always trigger my_note;
  create rule my_rule as on insert to pgflow.runs
    do also insert into mine.log values ('rule ' || new.flow_slug);
  create function mine.ddl() returns event_trigger language plpgsql as $$
    begin insert into mine.log values ('ddl ' || tg_tag); end $$;
  create event trigger my_ddl on ddl_command_end when tag in ('ALTER TABLE') execute function mine.ddl();

  create function mine.latest() returns setof pgflow.step_tasks language sql as $$
    select * from pgflow.step_tasks order by queued_at desc limit 1 $$;
  create function mine.amount() returns bigint language sql
    begin atomic select count(*) from pgflow.step_tasks; end;
  create function pgflow.my_status(task pgflow.step_tasks) returns text language plpgsql immutable
    as $$ begin return task.status; end $$;
  create index my_expression on pgflow.step_tasks (pgflow.my_status(step_tasks));
  create index my_partial on pgflow.step_tasks using hash (step_slug) where status = 'failed';
  create unique index my_identity on pgflow.step_tasks (run_id, step_slug, task_index);
  alter table pgflow.step_tasks replica identity using index my_identity, cluster on my_identity;
  create statistics mine.correlated (dependencies) on flow_slug, status from pgflow.step_tasks;
  alter table pgflow.step_tasks add constraint my_check check (attempts_count < 1000) not valid;

  create table mine.shadow (
    flow_slug text references pgflow.flows on delete cascade,
    run_id uuid, step_slug text, task_index integer,
    valid boolean generated always as (pgflow.is_valid_slug(flow_slug)) stored,
    delay integer default pgflow.calculate_retry_delay(5, 2),
    check (pgflow.is_valid_slug(step_slug)),
    foreign key (run_id, step_slug, task_index) references pgflow.step_tasks
  );
  insert into mine.shadow (flow_slug, run_id, step_slug, task_index)
    select flow_slug, run_id, step_slug, task_index from pgflow.step_tasks;

  alter table pgflow.step_tasks set (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.01);
  alter table pgflow.steps set (autovacuum_enabled = false);
  alter table pgflow.step_tasks
    alter column output set storage external, alter column status set statistics 500;
  alter index pgflow.idx_step_tasks_completed set (fillfactor = 80);
  comment on table pgflow.step_tasks is 'our comment';
  comment on column pgflow.step_tasks.status is 'our column';
  comment on index pgflow.idx_step_tasks_completed is 'our index';
  comment on function pgflow.start_flow(text, jsonb, uuid) is 'our function';

  create role {READER};
  grant usage on schema pgflow to {READER};
  grant select on pgflow.runs to {READER} with grant option;
  grant select (flow_slug, status), update (status) on pgflow.step_tasks to {READER};
  revoke execute on function pgflow.delete_flow_and_data(text) from public;
  alter default privileges in schema pgflow grant select on tables to {READER};
  alter table pgflow.step_tasks enable row level security;
  create policy my_policy on pgflow.step_tasks for select to {READER} using (flow_slug like 'Order%');

  create publication my_all for all tables;
  create publication my_columns for table pgflow.step_tasks (run_id, step_slug, task_index, status),
    pgflow.steps (flow_slug, step_slug);
  create publication my_rows for table pgflow.step_tasks where (task_index > 3) with (publish = 'insert');
  create publication my_schema for tables in schema pgflow;
  alter extension pg_cron add view mine.tasks;
  alter function mine.latest depends on extension pg_cron;
"""

MORE_FACTS = {
    # Without a column list a publication takes in the new columns.
    "publications": "select pubname, schemaname || '.' || tablename, rowfilter,"
    " case when pubname = 'my_columns' then attnames::text end from pg_publication_tables"
    " where schemaname <> 'pgflow_migrate' and tablename not in ('run_work', 'task_claims') order by 1, 2",
    "publications' objects": "select pubname, puballtables, pubinsert, pubupdate,"
    " (select count(*) from pg_publication_rel r where r.prpubid = p.oid),"
    " (select count(*) from pg_publication_namespace r where r.pnpubid = p.oid)"
    " from pg_publication p order by 1",
    "views": "select schemaname, viewname, definition from pg_views"
    " where schemaname = 'mine' or viewname like 'my%' order by 1, 2",
    "triggers": "select tgrelid::regclass::text, tgname, tgenabled::text, pg_get_triggerdef(oid)"
    " from pg_trigger where tgname like 'my%' order by 1, 2",
    "event triggers": "select evtname, evtenabled::text, evttags from pg_event_trigger",
    "rules": "select rulename, definition from pg_rules where rulename like 'my%'",
    "indexes": "select indexname, indexdef from pg_indexes where indexname like 'my%' order by 1",
    "index state": "select indexrelid::regclass::text, indisvalid, indisreplident, indisclustered"
    " from pg_index where indrelid = 'pgflow.step_tasks'::regclass"
    " and indexrelid::regclass::text !~ 'step_tasks_queue_message_key|idx_step_tasks_queued_msg' order by 1",
    "statistics": "select stxname, pg_get_statisticsobjdef(oid) from pg_statistic_ext",
    "options": "select relname, reloptions, relreplident::text, relrowsecurity, relacl::text from pg_class"
    " where relnamespace = 'pgflow'::regnamespace and relname not in"
    " ('step_tasks_queue_message_key', 'idx_step_tasks_queued_msg', 'flows_slug_case_insensitive_key',"
    " 'steps_slug_case_insensitive_key', 'idx_steps_queue_name')"
    " and relname !~ 'run_work|task_claims' order by 1",
    "columns": "select attname, attstorage::text, attstattarget, attacl::text from pg_attribute"
    " where attrelid = 'pgflow.step_tasks'::regclass and attnum > 0"
    " and attname not in ('queue_name', 'current_claim_id') order by 1",
    "policies": "select policyname, roles::text, qual from pg_policies where schemaname = 'pgflow'"
    " and tablename not in ('run_work', 'task_claims')",
    "default privileges": "select defaclnamespace::regnamespace::text, defaclacl::text from pg_default_acl",
    "comments": "select objoid::regclass::text, objsubid, description from pg_description"
    " where classoid = 'pg_class'::regclass and description like 'our%' order by 1, 2",
    "checks": "select conname, pg_get_constraintdef(oid), convalidated from pg_constraint"
    " where conname like 'my%' or connamespace = 'mine'::regnamespace order by 1",
    "rights": "select proname, proacl::text from pg_proc where proname = 'delete_flow_and_data'",
    "dependencies": "select pg_describe_object(classid, objid, objsubid), deptype::text from pg_depend"
    " where refclassid = 'pg_extension'::regclass"
    " and pg_describe_object(classid, objid, objsubid) like '%mine.%' order by 1, 2",
}


def facts(session: Session) -> dict[str, object]:
    """Everything about the user's own objects that the catalogue knows."""
    found: dict[str, object] = {name: session.execute(query).fetchall() for name, query in MORE_FACTS.items()}
    # Not the file on disk: indexes on a table that is rewritten are built anew.
    mine = catalogue.facts(session, ["mine"])
    return found | {name: re.sub(r" file \d+$", "", fact) for name, fact in mine.items()}


@pytest.fixture
def furnished(old: str, reach: Callable[[str], Session]) -> Iterator[str]:
    """The database with the user's objects."""
    session = reach(old)
    session.execute(OBJECTS.encode())
    yield old
    session.execute(f"drop owned by {READER} cascade; drop role {READER}".encode())


@pytest.mark.parametrize("way", ["command", "script"])
def test_they_are_as_they_were_and_work(
    way: str,
    furnished: str,
    upgrade_by: Callable[[str, str], None],
    reach: Callable[[str], Session],
    work: Callable[[Session], str],
) -> None:
    session = reach(furnished)
    before = facts(session)
    seen = "select * from pgflow.my_joined order by step_slug"
    joined = session.execute(seen).fetchall()
    upgrade_by(way, furnished)
    after = facts(session)
    assert {name: after.get(name) for name in before} == before
    assert after.keys() - before.keys() == {"schema pgflow_migrate: exists"}
    assert identify(session).release == HEAD

    assert session.execute(seen).fetchall() == joined
    assert session.execute("select queue_name from mine.latest()").fetchall() == [("order_flow",)]
    assert session.execute("select (task).queue_name from mine.whole_row").fetchall() == [("order_flow",)]
    assert session.execute("select mine.amount()").fetchall() == [(1,)]
    session.execute("truncate mine.log")
    assert work(session) == "completed"
    for view in ("mine.counted", "pgflow.my_copy"):
        session.execute(f"refresh materialized view {view}".encode())
    assert session.execute("select count from mine.counted").fetchall() == [(2,)]
    assert session.execute("select step_slug, queue_name from mine.with_queue order by 1").fetchall() == [
        ("pack", "Order_flow"),
        ("send", "Order_flow"),
    ]
    session.execute("select pgflow.start_flow('Order_flow', '{}')")
    logged = session.execute("select what, count(*) from mine.log group by 1 order by 1").fetchall()
    assert [what for what, _ in logged] == [
        "rule Order_flow",
        "runs UPDATE",
        "step_tasks INSERT",
        "step_tasks UPDATE",
    ]
    assert dict(logged)["step_tasks INSERT"] == 2
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        session.execute("delete from pgflow.step_tasks where step_slug = 'pack'")
    with pytest.raises(psycopg.errors.CheckViolation, match="my_check"):
        session.execute("update pgflow.step_tasks set attempts_count = 1000")
    session.execute("set enable_seqscan = off")
    plan = session.execute(
        "explain select from pgflow.step_tasks where pgflow.my_status(step_tasks) = 'queued'"
    ).fetchall()
    assert "my_expression" in repr(plan)

    session.execute(f"set role {READER}".encode())
    assert session.execute("select status from pgflow.step_tasks group by 1 order by 1").fetchall() == [
        ("completed",),
        ("queued",),
    ]
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute("select queue_name from pgflow.step_tasks")
    session.execute("reset role")
