"""Verifying: with SELECT alone, on one snapshot, leaving nothing behind; or saying why it could not look."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from tests.verify.conftest import WORK

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.work import work_off
from pgflow_migrate.verify.checks import CHECKS
from pgflow_migrate.verify.run import verify
from pgflow_migrate.verify.violations import Looked

Database = psycopg.Connection[dict[str, Any]]
Rows = list[tuple[Any, ...]]
Violated = Callable[[Database], Rows]

HOSTILE = 'my "flow"; drop table pgflow.runs; --\x1b[31m'

_numbers = itertools.count(1)


@pytest.fixture
def viewer(database: Database) -> Iterator[str]:
    """A role that may use the schemas and nothing else."""
    name = f'Viewer "{next(_numbers)}"'
    database.execute(
        sql.SQL("create role {0}; grant usage on schema pgflow, pgmq, pgflow_migrate to {0}").format(
            sql.Identifier(name)
        )
    )
    yield name
    database.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


def as_role(database: Database, role: str) -> str:
    """A connection string with that role's rights."""
    escaped = role.replace("\\", "\\\\").replace(" ", "\\ ")
    return make_conninfo(database.info.dsn, options=f"-c role={escaped}")


def grant_select(database: Database, role: str) -> None:
    database.execute(
        sql.SQL(
            "grant select on all tables in schema pgflow, pgmq, pgflow_migrate to {0};"
            " grant select on all sequences in schema pgmq to {0}"
        ).format(sql.Identifier(role))
    )


def test_a_database_at_work_is_clean_and_so_it_is_after_more_work(
    database: Database, violated: Violated
) -> None:
    found = verify(database.info.dsn)
    assert (found.violations, found.looked_at) == ((), Looked(flows=3, steps=2, tasks=5))
    database.execute(
        """
        update pgflow.step_tasks set
          queued_at = queued_at - interval '1 hour',
          started_at = started_at - interval '1 hour',
          requeued_count = 3
        where status = 'started';
        select pgflow.requeue_stalled_tasks();
        """
    )
    assert database.execute(
        "select count(*) as n from pgflow.step_tasks where permanently_stalled_at is not null"
    ).fetchall() == [{"n": 1}]
    assert violated(database) == []
    database.execute("select pgflow.start_flow('Orders', '{}') from generate_series(1, 3)")
    assert work_off(database, "Orders") == 5
    database.execute("select pgflow.delete_flow_and_data('mail'); delete from pgmq.a_orders")
    assert verify(database.info.dsn).looked_at == Looked(flows=2, steps=1, tasks=7)
    assert violated(database) == []


def test_what_is_no_violation(database: Database, violated: Violated) -> None:
    """A task that lost its message with its id; a message of a task that is over; queues of others."""
    database.execute("select pgflow.create_flow('later')")
    database.execute(
        """
        update pgflow.step_tasks set message_id = null where message_id = 4;
        delete from pgmq.q_orders where msg_id = 4;
        insert into pgmq.q_orders (msg_id, vt, message) overriding system value
        select msg_id, vt, message from pgmq.a_orders where msg_id = 1;
        select pgmq.create('an_applications');
        select pgmq.send('an_applications', '{}'::jsonb, 0::integer);
        select pgmq.create_unlogged('later');
        select pgmq.send('later', '{}'::jsonb, 0::integer);
        create table pgflow.my_own (id integer);
        grant select on pgflow.runs to public;
        """
    )
    assert violated(database) == []


def test_select_is_enough(database: Database, viewer: str) -> None:
    grant_select(database, viewer)
    assert verify(as_role(database, viewer)).violations == ()
    database.execute("select pgmq.purge_queue('orders')")
    assert [found.check for found in verify(as_role(database, viewer)).violations] == ["live-task-message"]


def test_rights_that_are_missing_are_named(database: Database, viewer: str) -> None:
    def missing() -> tuple[str, ...]:
        with pytest.raises(PgflowMigrateError) as caught:
            verify(as_role(database, viewer))
        assert (caught.value.message, caught.value.exit_code) == (
            "The role may not see all that has to be verified.",
            1,
        )
        return caught.value.details

    quoted = '"' + viewer.replace('"', '""') + '"'
    first = missing()
    assert first == tuple(
        f"grant select on {table} to {quoted};"
        for table in (
            "pgflow.flows",
            "pgflow.run_work",
            "pgflow.runs",
            "pgflow.step_states",
            "pgflow.step_tasks",
            "pgflow.steps",
            "pgflow.task_claims",
            "pgflow_migrate.alembic_version",
            "pgflow_migrate.schema_migrations",
            "pgmq.meta",
        )
    )
    database.execute(" ".join(first).encode())
    second = missing()
    assert second == tuple(
        f"grant select on {kind}pgmq.{name} to {quoted};"
        for kind, names in (
            ("", ("a_bare", "a_mail", "a_orders", "q_bare", "q_mail", "q_orders")),
            ("sequence ", ("q_bare_msg_id_seq", "q_mail_msg_id_seq", "q_orders_msg_id_seq")),
        )
        for name in names
    )
    database.execute(" ".join(second).encode())
    assert verify(as_role(database, viewer)).violations == ()


def test_a_schema_that_may_not_be_used_is_named(database: Database, viewer: str) -> None:
    grant_select(database, viewer)
    database.execute(sql.SQL("revoke usage on schema pgmq from {}").format(sql.Identifier(viewer)))
    with pytest.raises(PgflowMigrateError) as caught:
        verify(as_role(database, viewer))
    assert caught.value.details[0].startswith('grant usage on schema pgmq to "Viewer ""')


def test_row_security_that_hides_rows_is_no_clean_report(database: Database, viewer: str) -> None:
    grant_select(database, viewer)
    database.execute("alter table pgflow.step_tasks enable row level security")
    with pytest.raises(PgflowMigrateError) as caught:
        verify(as_role(database, viewer))
    assert caught.value.details[0].startswith("Row security hides rows of pgflow.step_tasks from ")
    assert verify(database.info.dsn).violations == ()


def test_it_changes_nothing_whatever_it_finds(database: Database) -> None:
    database.execute(
        """
        drop table pgmq.a_mail;
        delete from pgmq.meta where queue_name = 'orders';
        drop index pgflow.step_tasks_queue_message_key;
        select pgmq.purge_queue('orders');
        select pgmq.send('orders', '{}'::jsonb, 0::integer);
        """
    )
    before = signature.take(database)
    assert len(verify(database.info.dsn).violations) == 5
    assert signature.take(database) == before


@pytest.mark.parametrize(
    "settings",
    [
        "search_path=public,pgflow,pg_catalog",
        "quote_all_identifiers=on",
        "standard_conforming_strings=off",
        "DateStyle=German",
        "default_transaction_isolation=serializable",
        "default_transaction_read_only=on",
        "enable_hashjoin=off",
    ],
)
def test_the_servers_settings_do_not_matter(database: Database, settings: str) -> None:
    for name in ("flows", "steps", "step_tasks", "meta", "pg_class"):
        database.execute(f"create table public.{name} (decoy integer)".encode())
    database.execute("create function public.lower(text) returns text language sql as $$ select 'decoy' $$")
    database.execute("select pgmq.delete('orders', 4); delete from pgmq.meta where queue_name = 'mail'")
    found = verify(make_conninfo(database.info.dsn, options=f"-c {settings}"))
    assert [(one.check, one.subject) for one in found.violations] == [
        ("queue-metadata", "queue mail"),
        ("live-task-message", "queue orders"),
    ]


def test_names_that_are_not_what_pgflow_allows_are_data(database: Database) -> None:
    """Slugs are arbitrary text once their check is gone; none is executed."""
    database.execute("alter table pgflow.flows drop constraint slug_is_valid")
    database.execute("alter table pgflow.steps drop constraint steps_step_slug_check")
    database.execute("alter table pgflow.steps drop constraint queue_name_is_canonical")
    database.execute("insert into pgflow.flows (flow_slug) values (%s)", [HOSTILE])
    database.execute(
        "insert into pgflow.steps (flow_slug, step_slug, step_index, queue_name) values (%s, %s, 0, %s)",
        [HOSTILE, HOSTILE, HOSTILE],
    )
    database.execute(
        sql.SQL("create table {} (msg_id bigint); create table {} (id integer)").format(
            sql.Identifier("pgmq", f"q_{HOSTILE}"), sql.Identifier("pgmq", f"a_{HOSTILE}")
        )
    )
    database.execute(sql.SQL("insert into {} values (7)").format(sql.Identifier("pgmq", f"q_{HOSTILE}")))
    found = verify(database.info.dsn).violations
    assert [(one.check, one.subject, one.count) for one in found] == [
        ("catalogue", "schema pgflow", 3),
        ("slug-valid", f"flow {HOSTILE}", 2),
        ("step-route", f"flow {HOSTILE}", 1),
        ("queue-metadata", f"queue {HOSTILE}", 0),
        ("queue-objects", f"queue {HOSTILE}", 15),
        ("message-without-task", f"queue {HOSTILE}", 1),
    ]
    assert found[-1].samples == (f"{HOSTILE}/7",)


def test_it_reads_one_snapshot(database: Database, connect: Callable[[str], Database]) -> None:
    """A run that starts, and a message with it, between two of its statements is not half seen."""
    other = connect(database.info.dsn)
    with psycopg.connect(database.info.dsn) as session:
        session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        session.execute("select count(*) from pgflow.step_tasks")
        other.execute("select pgflow.start_flow('Orders', '{}'); select pgmq.archive('orders', 3)")
        from pgflow_migrate.verify.run import _verify

        assert _verify(session, 20).violations == ()
    assert [found.check for found in verify(database.info.dsn).violations] == ["live-task-archived"]


def test_it_does_not_wait_for_long(database: Database, connect: Callable[[str], Database]) -> None:
    other = connect(database.info.dsn)
    with other.transaction():
        other.execute("lock table pgmq.q_orders in access exclusive mode")
        with pytest.raises(PgflowMigrateError, match="waited 5 s for a lock"):
            verify(database.info.dsn)


@pytest.mark.parametrize(
    ("revision", "says"),
    [
        ("", "There is no schema pgflow in this database."),
        ("core_0_15_0", "This database is not upgraded: schema pgflow is 0.15.0."),
        ("core_0_16_0", "This database is not upgraded: schema pgflow is 0.16.0."),
    ],
)
def test_a_database_that_is_not_upgraded_is_told_what_it_is(
    revision: str, says: str, database_at: Callable[[str], str]
) -> None:
    with pytest.raises(PgflowMigrateError) as caught:
        verify(database_at(revision))
    assert (caught.value.message, caught.value.exit_code) == (says, 1)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (
            "alter table pgflow.step_tasks drop column queue_name cascade",
            'The database records revision "dirty_runs", but what that is verified by is missing.',
        ),
        (
            "drop schema pgmq cascade",
            "There is no usable table pgmq.meta in this database.",
        ),
        (
            "insert into pgflow_migrate.schema_migrations values ('step_queues', 'x')",
            'This database was upgraded by a newer pgflow-migrate: it is at revision "step_queues".',
        ),
        (
            "drop schema pgflow_migrate cascade; alter table pgflow.steps drop column queue_name",
            "This database is not upgraded: schema pgflow is of no known release, the closest is dirty_runs.",
        ),
    ],
)
def test_what_cannot_be_judged_is_not_judged(database: Database, damage: str, says: str) -> None:
    if (
        "schema pgmq" in damage
        and database.execute("select from pg_extension where extname = 'pgmq'").rowcount
    ):
        damage = "drop extension pgmq cascade; drop schema if exists pgmq cascade"
    database.execute(damage.encode())
    with pytest.raises(PgflowMigrateError) as caught:
        verify(database.info.dsn)
    assert caught.value.message == says


def test_a_database_that_somebody_else_upgraded_lacks_only_the_record(
    database: Database, violated: Violated
) -> None:
    database.execute("drop schema pgflow_migrate cascade")
    assert [(row[0], row[2]) for row in violated(database)] == [("version", 1), ("ledger", 5)]


def test_a_database_at_queue_identity_is_judged_as_that(
    database_at: Callable[[str], str], connect: Callable[[str], Database], violated: Violated
) -> None:
    database = connect(database_at("queue_identity"))
    database.execute(WORK.encode())
    found = verify(database.info.dsn)
    assert (found.violations, found.revision) == ((), "queue_identity")
    assert list(found.checks) == [name for name in CHECKS if not name.startswith("v2-")]
    database.execute("select pgmq.delete('orders', 4)")
    database.execute(
        "update pgflow_migrate.schema_migrations set name = 'dirty_runs' where name like 'core%1'"
    )
    assert [(row[0], row[3]) for row in violated(database)] == [
        ("ledger", ("core_0_15_1",)),
        ("ledger", ("dirty_runs",)),
        ("live-task-message", ("00000000-0000-4000-8000-000000000004/pack/0",)),
    ]


@pytest.mark.parametrize(
    ("at", "recorded"), [("queue_identity", "dirty_runs"), ("dirty_runs", "queue_identity")]
)
def test_a_record_of_the_other_revision_is_no_clean_report(
    at: str, recorded: str, database_at: Callable[[str], str], connect: Callable[[str], Database]
) -> None:
    database = connect(database_at(at))
    database.execute("update pgflow_migrate.alembic_version set version_num = %s", [recorded])
    if at == "dirty_runs":
        (violation,) = verify(database.info.dsn).violations
        assert (violation.check, violation.samples) == ("version", ("queue_identity",))
        assert violation.hint.endswith('alembic -x dsn="…" stamp dirty_runs')
        return
    with pytest.raises(PgflowMigrateError) as caught:
        verify(database.info.dsn)
    assert caught.value.message == (
        'The database records revision "dirty_runs", but what that is verified by is missing.'
    )
    assert "column run_work.run_id is missing" in caught.value.details
