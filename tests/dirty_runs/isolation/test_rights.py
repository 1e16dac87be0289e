"""Roles with no more rights than protocol 1 asks of them, and rows that row level security hides."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege, ObjectNotInPrerequisiteState
from tests.dirty_runs.protocol import Session

from pgflow_migrate.replay.templates import Templates, upgrade_to
from pgflow_migrate.servers import Server

DEPLOYER, MOVER, DELETER, TENANT, CALLER, READER = ROLES = tuple(
    f"rights_{name}" for name in ("deployer", "mover", "deleter", "tenant", "caller", "reader")
)
# At queue identity, where each of these rights is needed, and no other.
GRANTS = f"""
  grant usage on schema pgflow, pgmq to {DEPLOYER}, {MOVER}, {DELETER}, {TENANT}, {READER};
  grant select, insert, update on pgflow.flows, pgflow.steps, pgflow.deps to {DEPLOYER};
  grant select on pgmq.meta to {DEPLOYER};
  grant select, update on pgmq.q_v1, pgmq.q_demo to {MOVER};
  grant select, update, delete on pgflow.flows, pgflow.runs to {DELETER};
  grant select, delete on pgflow.step_tasks, pgflow.step_states, pgflow.steps, pgflow.deps to {DELETER};
  grant create on schema pgmq to {DELETER};
  grant all on all tables in schema pgmq to {DELETER};
  alter table pgmq.q_gone owner to {DELETER};
  alter table pgmq.a_gone owner to {DELETER};
  grant select on pgflow.runs, pgflow.step_tasks to {TENANT};
  alter table pgflow.runs enable row level security;
  alter table pgflow.step_tasks enable row level security;
  create policy all_rows on pgflow.runs to {DELETER} using (true);
  create policy all_rows on pgflow.step_tasks to {DELETER} using (true);
  grant all on all tables in schema pgflow to {READER};
  create policy to_read on pgflow.runs for select to {READER} using (true);
  create policy to_read on pgflow.step_tasks for select to {READER} using (true);
"""
WRAPPER = f"""
  create function public.start_demo() returns jsonb language sql security definer set search_path = ''
    as $$ select pgflow.start_flow_v2('demo', '{{}}') $$;
  create function public.delete_over() returns void language sql security definer set search_path = ''
    as $$ select pgflow.delete_flow_and_data('over') $$;
  create function public.forget_over() returns void language sql security definer set search_path = ''
    as $$ delete from pgflow.run_work where flow_slug = 'over' $$;
  grant execute on function public.start_demo(), public.delete_over(), public.forget_over() to {CALLER};
"""


@dataclass(frozen=True)
class Upgraded:
    """A database whose roles got their rights before protocol 2 came.

    Attributes:
        session: its superuser's.
        failed: a run of protocol 2 that failed with an error text.
    """

    session: Session
    failed: UUID

    def as_role(self, role: str, query: str) -> list[tuple[object, ...]]:
        """Rows of a query, in a transaction of its own that commits."""
        # Closed also when it cannot commit.
        opened = psycopg.connect(make_conninfo(self.session.dsn, user=role))
        with closing(opened) as connection, connection.transaction():
            return connection.execute(query.encode()).fetchall()


@pytest.fixture(scope="module")
def upgraded(server: Server, templates: Templates) -> Iterator[Upgraded]:
    dsn = templates.clone("queue_identity", "dirty_runs_rights")
    session = Session(dsn)
    for role in ROLES:
        session.execute(f"create role {role} login")
    for flow in ("v1", "gone"):
        session.execute(f"select pgflow.create_flow('{flow}'); select pgflow.add_step('{flow}', 'a')")
        session.execute(f"select pgflow.start_flow('{flow}', '{{}}')")
    session.define()
    session.execute(GRANTS)
    upgrade_to(dsn, "dirty_runs")
    session.execute(WRAPPER)
    failed = session.started()
    session.fail(session.claimed(failed, "a"), "of another tenant")
    yield Upgraded(session, failed)
    session.close()
    server.drop_database("dirty_runs_rights")
    with psycopg.connect(server.admin_dsn, autocommit=True) as admin:
        for role in ROLES:
            admin.execute(f"drop role {role}".encode())


def test_who_defines_flows_needs_no_right_to_read_runs(upgraded: Upgraded) -> None:
    assert upgraded.as_role(DEPLOYER, "select (pgflow.add_step('v1', 'b', '{a}')).step_slug") == [("b",)]
    with pytest.raises(InsufficientPrivilege):
        upgraded.as_role(DEPLOYER, "select from pgflow.runs")


@pytest.mark.parametrize(
    "change",
    [
        "select pgflow.add_step('demo', 'c')",
        "update pgflow.steps set opt_timeout = 9 where flow_slug = 'demo' returning 1",
    ],
)
def test_a_definition_is_frozen_for_who_cannot_see_the_run_that_needs_it(
    upgraded: Upgraded, change: str
) -> None:
    with pytest.raises(ObjectNotInPrerequisiteState, match='the definition of flow "demo" is frozen'):
        upgraded.as_role(DEPLOYER, change)


def test_who_moves_messages_needs_no_right_to_read_runs_and_moves_none_of_protocol_2(
    upgraded: Upgraded,
) -> None:
    run = upgraded.session.started()
    message = upgraded.session.task(run, "a")["message_id"]
    move = "select msg_id from pgflow.set_vt_batch('{}', array[{}]::bigint[], array[0])"
    assert upgraded.as_role(MOVER, move.format("v1", 1)) == [(1,)]
    assert upgraded.as_role(MOVER, move.format("demo", message)) == []


def test_who_deletes_flows_needs_no_right_to_update_tasks(upgraded: Upgraded) -> None:
    assert upgraded.as_role(DELETER, "select pgflow.delete_flow_and_data('gone')::text") == [("",)]
    assert upgraded.session.rows("select from pgflow.flows where flow_slug = 'gone'") == []


@pytest.fixture
def late(upgraded: Upgraded, server: Server) -> Iterator[str]:
    """A role that gets all rights on the tables that protocol 1 has, after protocol 2 came."""
    name = "rights_late"
    upgraded.session.execute(
        f"""
        create role {name} login;
        grant usage on schema pgflow, pgmq, realtime to {name};
        grant insert on all tables in schema realtime to {name};
        grant usage on all sequences in schema realtime, pgmq to {name};
        grant select, insert, update, delete on pgflow.flows, pgflow.steps, pgflow.deps, pgflow.runs,
          pgflow.step_states, pgflow.step_tasks, pgflow.workers to {name};
        grant all on all tables in schema pgmq to {name};
        create policy of_late on pgflow.runs to {name} using (true);
        create policy of_late on pgflow.step_tasks to {name} using (true);
        """
    )
    yield name
    upgraded.session.execute(
        f"drop policy of_late on pgflow.runs; drop policy of_late on pgflow.step_tasks; drop owned by {name}"
    )
    upgraded.session.execute(f"drop role {name}")


def test_protocol_1_needs_no_right_on_the_tables_of_protocol_2(upgraded: Upgraded, late: str) -> None:
    for table in ("run_work", "task_claims"):
        with pytest.raises(InsufficientPrivilege):
            upgraded.as_role(late, f"select from pgflow.{table}")
    ((run,),) = upgraded.as_role(late, "select run_id from pgflow.start_flow('v1', '{}')")
    message = upgraded.session.value(
        "select message_id from pgflow.step_tasks where run_id = %s and step_slug = 'a'", run
    )
    worker = UUID("00000000-0000-4000-8000-000000000009")
    upgraded.as_role(
        late,
        "insert into pgflow.workers (worker_id, queue_name, function_name)"
        f" values ('{worker}', 'v1', 'late') returning 1",
    )
    claim = f"select pgflow.claim_tasks('v1', 'v1', array[{message}]::bigint[], '{worker}') ->> 'outcome'"
    assert upgraded.as_role(late, claim) == [("claimed",)]
    assert upgraded.as_role(late, f"select status from pgflow.complete_task('{run}', 'a', 0, '1')") == [
        ("completed",)
    ]


def test_protocol_1_knows_the_runs_of_protocol_2_also_where_their_work_is_hidden(
    upgraded: Upgraded, late: str
) -> None:
    run = upgraded.session.started()
    upgraded.session.claimed(run, "a")
    before = upgraded.session.everything()
    for call in ("complete_task('{}', 'a', 0, '1')", "fail_task('{}', 'a', 0, 'no')"):
        with pytest.raises(psycopg.Error) as caught:
            upgraded.as_role(late, f"select 1 from pgflow.{call.format(run)}")
        assert caught.value.sqlstate == "PF005"
    for helper in ("maybe_complete_run", "start_ready_steps", "cascade_complete_taskless_steps"):
        upgraded.as_role(late, f"select pgflow.{helper}('{run}')::text")
    assert upgraded.session.everything() == before


def test_the_new_tables_show_nobody_what_row_level_security_hides(upgraded: Upgraded) -> None:
    assert upgraded.session.rows("select from pgflow.task_claims where run_id = %s", upgraded.failed) == [{}]
    for table in ("runs", "run_work", "step_tasks", "task_claims"):
        assert upgraded.as_role(TENANT, f"select count(*) from pgflow.{table}") == [(0,)], table


def test_who_may_only_see_the_rows_of_protocol_1_may_only_see_those_of_protocol_2(upgraded: Upgraded) -> None:
    """All is granted, but by its policies a role may not update runs and tasks."""
    session = upgraded.session
    run = session.started()
    token = session.claimed(run, "a")
    assert upgraded.as_role(READER, f"select count(*) from pgflow.run_work where run_id = '{run}'") == [(1,)]
    assert upgraded.as_role(
        READER, f"select count(*) from pgflow.task_claims where claim_id = '{token}'"
    ) == [(1,)]
    before = session.everything()
    for change in (
        "update pgflow.runs set input = input",
        "update pgflow.run_work set state = 'attention', attention_at = now(),"
        " attention_reason = 'message_missing'",
        "update pgflow.task_claims set state = 'revoked', revoked_at = now(), revoked_reason = 'lease_lost'",
        "delete from pgflow.run_work",
        "delete from pgflow.task_claims",
    ):
        assert upgraded.as_role(READER, f"{change} returning 1") == [], change
    with pytest.raises(InsufficientPrivilege, match='row-level security policy for table "run_work"'):
        upgraded.as_role(
            READER,
            "insert into pgflow.run_work (run_id, flow_slug, definition_sha256)"
            f" values ('{run}', 'demo', sha256('any'))",
        )
    assert session.everything() == before
    # Who may update runs may write their work.
    ask = "update pgflow.run_work set requested_at = now() where run_id = '{}' returning 1"
    assert upgraded.as_role(DELETER, ask.format(run)) == [(1,)]


def test_rows_that_are_hidden_from_their_owner_are_no_rows_of_protocol_1(
    upgraded: Upgraded, late: str
) -> None:
    """FORCE ROW LEVEL SECURITY: what looks with the owner's eyes refuses to look."""
    session = upgraded.session
    message = session.task(session.started(), "a")["message_id"]
    before = session.everything()
    owned = "".join(
        f"alter table pgflow.{table} owner to {DEPLOYER};" for table in ("runs", "step_tasks", "run_work")
    )
    for call, refused in (
        (f"pgflow.claim_tasks('demo', 'demo', array[{message}]::bigint[], gen_random_uuid())", "step_tasks"),
        (f"pgflow._archive_messages(array['demo'], array[{message}]::bigint[])", "step_tasks"),
        ("pgflow.start_flow_v2('demo', '{}')", "runs"),
    ):
        with session.connection.transaction(force_rollback=True):
            session.execute(
                f"{owned} alter table pgflow.runs force row level security;"
                "alter table pgflow.step_tasks force row level security;"
                f"grant create on schema pgflow to {DEPLOYER};"
                f"alter function pgflow._v2_owned_messages owner to {DEPLOYER};"
                f"alter function pgflow._v2_guard_work owner to {DEPLOYER};"
                f"grant select, insert on pgflow.run_work to {late}; set local role {late}"
            )
            with pytest.raises(InsufficientPrivilege, match=f'policy for table "{refused}"'):
                session.execute(f"select {call}")
    assert session.everything() == before


def test_a_work_row_that_is_hidden_from_its_owner_makes_no_run_of_protocol_1(
    upgraded: Upgraded, late: str
) -> None:
    """FORCE ROW LEVEL SECURITY on the work rows: whoever asks for the protocol of a run is refused."""
    session = upgraded.session
    run = session.started()
    before = session.everything()
    asking = (
        "_speaks_protocol_2",
        "_require_protocol_1",
        "_flow_speaks_protocol_2",
        "_v2_guard_run",
        "_v2_guard_task",
    )
    for call in (
        f"select pgflow.complete_task('{run}', 'a', 0, '1')",
        f"select pgflow.fail_task('{run}', 'a', 0, 'no')",
        f"select pgflow._require_protocol_1('{run}')",
        "select pgflow._flow_speaks_protocol_2('demo')",
        f"update pgflow.runs set input = '2' where run_id = '{run}'",
        f"update pgflow.step_tasks set message_id = 0 where run_id = '{run}'",
    ):
        with session.connection.transaction(force_rollback=True):
            session.execute(
                f"alter table pgflow.run_work owner to {DEPLOYER};"
                "alter table pgflow.run_work force row level security;"
                f"grant create on schema pgflow to {DEPLOYER};"
                + "".join(f"alter function pgflow.{name} owner to {DEPLOYER};" for name in asking)
            )
            with pytest.raises(InsufficientPrivilege, match='policy for table "run_work"'):
                session.execute(call)
    assert session.everything() == before


BAIT = """
  create type pg_temp.bait as (x text);
  create function pg_temp.taken(pg_temp.bait) returns {type} language plpgsql
    as $$ begin raise exception 'ran as %', current_user using errcode = 'XX001'; end $$;
  create cast (pg_temp.bait as {type}) with function pg_temp.taken(pg_temp.bait) as implicit;
  create temp table mine (
    run_id pg_temp.bait, flow_slug pg_temp.bait, status pg_temp.bait, claim_id pg_temp.bait
  );
  insert into mine values (row('x'), row('x'), row('x'), row('x'));
  create trigger protocol_2_end {event} on mine for each row execute function pgflow.{guard}();
  {statement};
  set constraints all immediate;
"""


@pytest.mark.parametrize("type_", ["uuid", "text"])
@pytest.mark.parametrize(
    ("event", "statement"),
    [
        ("before insert", "insert into mine select * from mine"),
        ("after update", "update mine set run_id = row('y')"),
        ("before delete", "delete from mine"),
    ],
)
def test_a_guard_runs_no_code_of_who_puts_it_on_a_table_of_his_own(
    upgraded: Upgraded, event: str, statement: str, type_: str
) -> None:
    """It runs as the owner, and may be called by everybody: so it looks at no row of such a table."""
    session = upgraded.session
    session.started()
    guards = session.rows(
        "select proname from pg_proc where pronamespace = 'pgflow'::regnamespace"
        " and prorettype = 'trigger'::regtype and prosecdef"
    )
    assert len(guards) == 6
    for guard in guards:
        with pytest.raises(psycopg.Error, match="mine is not a table that this guards") as caught:
            upgraded.as_role(
                MOVER,
                BAIT.format(type=type_, event=event, guard=guard["proname"], statement=statement),
            )
        assert caught.value.sqlstate == "39P01"


def test_a_start_by_a_function_of_the_owners_commits_for_who_has_no_rights_at_all(upgraded: Upgraded) -> None:
    query = "select public.start_demo() ->> 'outcome'"
    assert upgraded.as_role(CALLER, query) == [("started",)]


def test_so_does_a_deletion_and_a_lost_work_row_is_found_for_him_too(upgraded: Upgraded) -> None:
    """Its run is looked for when the transaction ends: before PostgreSQL 18 by the rights of who calls."""
    session = upgraded.session
    session.define("over")
    run = session.started("over")
    session.fail(session.claimed(run, "a"))
    session.release(run)
    with pytest.raises(psycopg.Error, match=f"run {run} of protocol 2 has lost its work row") as caught:
        upgraded.as_role(CALLER, "select public.forget_over()::text")
    assert caught.value.sqlstate == "PF006"
    assert upgraded.as_role(CALLER, "select public.delete_over()") == [(None,)]
    for table in ("runs", "run_work"):
        assert session.rows(f"select from pgflow.{table} where run_id = %s", run) == [], table
