"""As on Supabase: no superuser, schema pgflow is one role's, PGMQ another's, and callers have grants only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.dirty_runs.protocol import Session as ProtocolSession

from pgflow_migrate import database, resources
from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.differences import differences
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.status import read_status
from pgflow_migrate.verify.run import verify

Session = psycopg.Connection[Any]

OWNER, MEMBER, PGMQS, SERVICE, STRANGER = (
    f"hosted_{name}" for name in ("owner", "member", "pgmq", "service", "stranger")
)
RUN = "00000000-0000-4000-8000-00000000000a"
WORKER = "00000000-0000-4000-8000-00000000000b"
PAIR = b"""
  select pgflow.create_flow('pair', 1, 0, 60);
  select pgflow.add_step('pair', 'a');
  select pgflow.add_step('pair', 'b', array['a']);
"""

GIVE_AWAY = f"""
do $$
declare
  statement text;
begin
  for statement in
    select format('alter table %s owner to {OWNER}', c.oid::regclass) from pg_class c
    where c.relnamespace = 'pgflow'::regnamespace and c.relkind = 'r'
    union all
    select format('alter type %s owner to {OWNER}', t.oid::regtype) from pg_type t
    join pg_class c on c.oid = t.typrelid
    where t.typnamespace = 'pgflow'::regnamespace and c.relkind = 'c'
    union all
    select format('alter function %s owner to {OWNER}', p.oid::regprocedure) from pg_proc p
    where p.pronamespace = 'pgflow'::regnamespace
    union all
    select format('alter table %s owner to {PGMQS}', c.oid::regclass) from pg_class c
    where c.relnamespace = 'pgmq'::regnamespace and c.relkind = 'r'
  loop
    execute statement;
  end loop;
end;
$$;
alter schema pgflow owner to {OWNER};
alter schema pgmq owner to {PGMQS};

grant usage, create on schema pgmq to {OWNER};
grant select, insert, update, delete on all tables in schema pgmq to {OWNER};
grant select on all sequences in schema pgmq to {OWNER};
grant usage on schema realtime to {OWNER}, {SERVICE};
grant all on all tables in schema realtime to {OWNER}, {SERVICE};
grant all on all sequences in schema realtime to {OWNER}, {SERVICE};

grant usage on schema pgflow, pgmq to {SERVICE};
grant select, insert, update, delete on all tables in schema pgflow, pgmq to {SERVICE};
alter default privileges for role {OWNER} in schema pgmq
  grant select, insert, update, delete on tables to {SERVICE};
revoke execute on all functions in schema pgflow from public;
grant execute on all functions in schema pgflow to {SERVICE};
alter default privileges for role {OWNER} revoke execute on functions from public;
"""


@pytest.fixture
def hosted(old: str, reach: Callable[[str], Session]) -> Iterator[str]:
    """The database after all has been given away, as its superuser sees it."""
    admin = reach(old)
    for role in (OWNER, MEMBER, PGMQS, SERVICE, STRANGER):
        admin.execute(sql.SQL("create role {} login").format(sql.Identifier(role)))
    admin.execute(f"grant {OWNER} to {MEMBER}".encode())
    admin.execute(GIVE_AWAY.encode())
    admin.execute(f"grant create on database {admin.info.dbname} to {OWNER}".encode())
    yield old
    for role in (OWNER, MEMBER, PGMQS, SERVICE, STRANGER):
        gone = sql.SQL("reassign owned by {0} to postgres; drop owned by {0} cascade; drop role {0}")
        admin.execute(gone.format(sql.Identifier(role)))


def owners(session: Session) -> list[tuple[str, str]]:
    """Who owns something in schema pgflow, and kinds of what."""
    return session.execute(
        "select distinct 'function', proowner::regrole::text from pg_proc"
        " where pronamespace = 'pgflow'::regnamespace union all"
        " select distinct 'relation', relowner::regrole::text from pg_class"
        " where relnamespace = 'pgflow'::regnamespace order by 1, 2"
    ).fetchall()


def work_2(dsn: str) -> str:
    """Do all of a run of protocol 2, by functions alone; returns what becomes of the run."""
    session = ProtocolSession(dsn)
    try:
        run = session.started("pair")
        for step in ("a", "b"):
            assert session.complete(session.claimed(run, step), {})["outcome"] == "accepted"
            session.settle_down(run)
        return str(session.run(run)["status"])
    finally:
        session.close()


# The superuser, too: who runs the upgrade must not become the owner of anything.
@pytest.mark.parametrize(("way", "role"), [("command", OWNER), ("script", MEMBER), ("command", "postgres")])
def test_owner_member_and_superuser_upgrade_and_the_owner_owns_all(
    way: str,
    role: str,
    hosted: str,
    upgrade_by: Callable[[str, str], None],
    work: Callable[[Session], str],
    reach: Callable[[str], Session],
) -> None:
    dsn = make_conninfo(hosted, user=role)
    upgrade_by(way, dsn)
    assert verify(dsn).violations == ()
    status = read_status(dsn)
    assert (status.release, status.missing_grants, status.server.owns_pgflow) == (HEAD, (), True)
    assert owners(reach(hosted)) == [("function", OWNER), ("relation", OWNER)]

    # The runtime, by grants alone; the stranger by none.
    service = reach(make_conninfo(hosted, user=SERVICE))
    assert work(service) == "completed"
    owner = reach(make_conninfo(hosted, user=OWNER))
    owner.execute(PAIR)
    assert work_2(make_conninfo(hosted, user=SERVICE)) == "completed"
    stranger = reach(make_conninfo(hosted, user=STRANGER))
    for function in (
        *("claim_tasks", "_claim_messages", "_complete_step_if_last_task", "ensure_flow_compiled"),
        *("start_flow_v2", "claim_task_v2", "_v2_chunk", "reconcile_one_run"),
    ):
        may = "select bool_or(has_function_privilege(p.oid, 'execute')) from pg_proc p where p.proname = %s"
        assert service.execute(may, (function,)).fetchall() == [(True,)], function
        assert stranger.execute(may, (function,)).fetchall() == [(False,)], function


def test_the_owner_compiles_a_flow_makes_its_queue_works_it_off_and_deletes_it(
    hosted: str, reach: Callable[[str], Session]
) -> None:
    dsn = make_conninfo(hosted, user=OWNER)
    upgrade(dsn)
    session = reach(dsn)
    session.execute(
        """
        select pgflow.ensure_flow_compiled('Mail', '{"steps": []}', '{"queueIdentity": true}');
        select pgflow.add_step('Mail', 'send');
        """
    )
    assert session.execute(
        "select relname, relowner::regrole::text from pg_class"
        " where relname in ('q_mail', 'a_mail') order by relname"
    ).fetchall() == [("a_mail", OWNER), ("q_mail", OWNER)]
    session.execute("select pgflow.track_worker_function('w')")
    session.execute(
        "insert into pgflow.workers (worker_id, function_name, queue_name) values (%s, 'w', 'mail')",
        (WORKER,),
    )
    run = session.execute("select run_id from pgflow.start_flow('Mail', '{}')").fetchall()[0][0]
    claim = "select pgflow.claim_tasks('mail', 'Mail', %s, %s) ->> 'outcome'"
    assert session.execute(claim, ([1], WORKER)).fetchall() == [("claimed",)]
    assert session.execute(
        "select status from pgflow.complete_task(%s, 'send', 0, '{}')", (run,)
    ).fetchall() == [("completed",)]

    # A fatal outcome pauses the function; the operator resumes it.
    session.execute("""select pgmq.send('mail', '{"run_id": "nobody''s"}'::jsonb)""")
    assert session.execute(claim, ([2], WORKER)).fetchall() == [("fatal",)]
    assert [paused.function_name for paused in read_status(dsn).paused or ()] == ["w"]
    session.execute("select pgflow.resume_worker_function('w')")
    session.execute("select pgmq.archive('mail', 2)")

    session.execute("select pgflow.delete_flow_and_data('Mail')")
    assert session.execute("select to_regclass('pgmq.q_mail')").fetchall() == [(None,)]
    assert session.execute("select flow_slug from pgflow.flows").fetchall() == [("Order_flow",)]


def test_the_queue_of_another_role_is_left_whole_when_its_flow_is_deleted(
    hosted: str, reach: Callable[[str], Session]
) -> None:
    """Dropping a table takes its owner; on PGMQ's side that is another role."""
    dsn = make_conninfo(hosted, user=OWNER)
    upgrade(dsn)
    session = reach(dsn)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        session.execute("select pgflow.delete_flow_and_data('Order_flow')")
    assert session.execute(
        "select (select count(*) from pgflow.step_tasks), (select count(*) from pgmq.q_order_flow)"
    ).fetchall() == [(1, 1)]


def test_rows_that_forced_row_security_hides_are_refused_by_table(
    hosted: str,
    refuse_it: Callable[[str], list[tuple[str, tuple[str, ...]]]],
    upgrade_by: Callable[[str, str], None],
    reach: Callable[[str], Session],
) -> None:
    admin = reach(hosted)
    tables = ("deps", "flows", "runs", "step_states", "step_tasks", "steps", "worker_functions", "workers")
    for table in tables:
        admin.execute(
            f"alter table pgflow.{table} enable row level security, force row level security;"
            f"create policy mine on pgflow.{table} using (false)".encode()
        )
    admin.execute("alter table pgmq.meta enable row level security")
    admin.execute("alter table pgmq.q_order_flow enable row level security")
    dsn = make_conninfo(hosted, user=OWNER)
    hidden = [("missing-privilege", (f"pgflow.{table}",)) for table in tables]
    for setting in ("on", "off"):
        database = f"in database {admin.info.dbname}"
        admin.execute(f"alter role {OWNER} {database} set row_security = {setting}".encode())
        assert refuse_it(dsn) == [*hidden, ("missing-privilege", ("pgmq.meta",))]

    # Not forced, the owner sees all; and so does whoever may bypass it.
    admin.execute(f"alter role {OWNER} bypassrls".encode())
    for table in tables:
        admin.execute(f"alter table pgflow.{table} no force row level security".encode())
    assert run_audit(dsn).blocking == ()
    upgrade_by("command", dsn)
    assert admin.execute(
        "select count(*) from pg_policies where schemaname = 'pgflow' and qual = 'false'"
    ).fetchall() == [(8,)]
    assert admin.execute("select queue_name from pgflow.step_tasks").fetchall() == [("order_flow",)]


def test_the_owner_takes_dirty_runs_back_and_owners_and_grants_stay(
    hosted: str, reach: Callable[[str], Session]
) -> None:
    """Of a function that one more role may call, and of a table that it may read, for instance."""
    dsn = make_conninfo(hosted, user=OWNER)
    upgrade(dsn, "queue_identity")
    admin = reach(hosted)
    admin.execute(
        sql.SQL(
            "grant execute on function pgflow.complete_task(uuid, text, integer, jsonb) to {0};"
            " grant select on pgflow.runs to {0}"
        ).format(sql.Identifier(STRANGER))
    )
    before = signature.take(admin)
    upgrade(dsn)
    readable = "select has_table_privilege(%s, 'pgflow.run_work', 'select')"
    assert admin.execute(readable, (STRANGER,)).fetchall() == [(True,)]
    engine = database.engine(dsn)
    with engine.begin() as connection:
        config = Config(str(resources.alembic_ini()))
        config.attributes["connection"] = connection
        command.downgrade(config, "queue_identity")
    engine.dispose()
    assert [
        text for text in differences(before, signature.take(admin)) if "alembic_version" not in text
    ] == []
