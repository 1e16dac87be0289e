"""What queue identity leaves behind, and that its last look would see it missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate import resources
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.upgrade.run import upgrade

Connection = psycopg.Connection[dict[str, Any]]
LAST_LOOK = "".join(
    (resources.revision_sql("queue_identity") / name).read_text(encoding="utf-8")
    for name in ("invariants.sql", "verify.sql")
).encode()


@pytest.fixture
def session(database_at: Callable[[str], str], connect: Callable[[str], Connection]) -> Connection:
    """A database at queue identity with a flow of two steps and a run."""
    session = connect(database_at("queue_identity"))
    session.execute(
        """
        select pgflow.create_flow('orderItems');
        select pgflow.add_step('orderItems', 'pick');
        select pgflow.add_step('orderItems', 'pack', array['pick']);
        select pgflow.start_flow('orderItems', '{}');
        """
    )
    return session


@pytest.mark.parametrize(
    ("statement", "sqlstate", "constraint"),
    [
        ("select pgflow.create_flow('ORDERITEMS')", "23505", "flows_slug_case_insensitive_key"),
        ("select pgflow.add_step('orderItems', 'PICK')", "23505", "steps_slug_case_insensitive_key"),
        ("select pgflow.create_flow('order__items')", "23514", "slug_is_valid"),
        ("select pgflow.add_step('orderItems', 'pick_')", "23514", "steps_step_slug_check"),
        ("update pgflow.steps set queue_name = 'OrderItems'", "23514", "queue_name_is_canonical"),
        (f"update pgflow.step_tasks set queue_name = '{'q' * 48}'", "23514", "queue_name_is_canonical"),
    ],
)
def test_what_is_refused_from_now_on(
    session: Connection, statement: str, sqlstate: str, constraint: str
) -> None:
    with pytest.raises(psycopg.IntegrityError) as caught:
        session.execute(statement.encode())
    assert (caught.value.sqlstate, caught.value.diag.constraint_name) == (sqlstate, constraint)


def test_the_spelling_of_flows_and_steps_is_kept_and_queues_are_canonical(session: Connection) -> None:
    assert session.execute(
        "select flow_slug, step_slug, queue_name from pgflow.steps order by step_index"
    ).fetchall() == [
        {"flow_slug": "orderItems", "step_slug": "pick", "queue_name": "orderitems"},
        {"flow_slug": "orderItems", "step_slug": "pack", "queue_name": "orderitems"},
    ]
    assert session.execute("select flow_slug, queue_name, message_id from pgflow.step_tasks").fetchall() == [
        {"flow_slug": "orderItems", "queue_name": "orderitems", "message_id": 1}
    ]


def test_every_function_pins_its_search_path(session: Connection) -> None:
    loose = session.execute(
        """
        select proname from pg_proc
        where pronamespace = 'pgflow'::regnamespace
          and not exists (select from unnest(proconfig) as setting where setting like 'search_path=%')
        """
    ).fetchall()
    assert loose == []


def test_a_task_without_a_message_needs_no_identity(session: Connection) -> None:
    session.execute("update pgflow.step_tasks set message_id = null")
    session.execute("select pgflow.start_flow('orderItems', '{}')")
    session.execute("update pgflow.step_tasks set message_id = null")
    assert session.execute(
        "select count(*) as n from pgflow.step_tasks where message_id is null"
    ).fetchone() == {"n": 2}


@pytest.mark.parametrize(
    ("damage", "check", "sample"),
    [
        (
            "update pgflow.steps set queue_name = 'elsewhere' where step_slug = 'pack'",
            "step-route",
            "pack in elsewhere",
        ),
        (
            "alter table pgflow.step_tasks alter queue_name drop not null",
            "catalogue",
            "pgflow.step_tasks.queue_name is missing, nullable or generated",
        ),
        (
            "drop index pgflow.step_tasks_queue_message_key",
            "catalogue",
            "unique index pgflow.step_tasks_queue_message_key is missing or invalid",
        ),
        (
            "alter table pgflow.step_tasks drop constraint queue_name_is_canonical",
            "catalogue",
            "pgflow.step_tasks lacks constraint queue_name_is_canonical",
        ),
    ],
)
def test_the_last_look_sees_what_is_missing(
    session: Connection, damage: str, check: str, sample: str
) -> None:
    with session.transaction():
        session.execute(LAST_LOOK)
    session.execute(damage.encode())
    with pytest.raises(psycopg.Error) as caught, session.transaction():
        session.execute(LAST_LOOK)
    assert caught.value.sqlstate == "PF004"
    violation = json.loads((caught.value.diag.message_detail or "").splitlines()[0])
    assert (violation["check"], violation["samples"]) == (check, [sample])


def test_a_case_duplicate_that_appears_after_the_audit_is_still_refused(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    """The unique index stands behind the preflight: taken alone, the constraints refuse it too."""
    session = connect(database_at("core_0_16_0"))
    session.execute("insert into pgflow.flows (flow_slug) values ('a'), ('A')")
    rules = (resources.revision_sql("queue_identity") / "slug_rules.sql").read_text(encoding="utf-8")
    with pytest.raises(psycopg.errors.UniqueViolation) as caught, session.transaction():
        session.execute(rules.encode())
    assert caught.value.diag.constraint_name == "flows_slug_case_insensitive_key"


def test_deletion_drops_the_exact_spelling_and_only_that_flow(session: Connection) -> None:
    session.execute(
        "select pgmq.create('orderitems_2'); select pgmq.send('orderitems_2', '{}'::jsonb, 0::integer)"
    )
    session.execute("select pgflow.delete_flow_and_data('orderItems')")
    assert session.execute("select queue_name from pgmq.meta").fetchall() == [{"queue_name": "orderitems_2"}]
    assert session.execute(
        "select to_regclass('pgmq.q_orderitems') as q, to_regclass('pgmq.a_orderitems') as a"
    ).fetchone() == {
        "q": None,
        "a": None,
    }
    for table in ("flows", "steps", "deps", "runs", "step_states", "step_tasks"):
        assert session.execute(f"select count(*) as n from pgflow.{table}".encode()).fetchone() == {"n": 0}


def test_a_second_upgrade_changes_nothing(database_at: Callable[[str], str]) -> None:
    result = upgrade(database_at(HEAD))
    assert (result.already_current, result.revision, result.applied) == (True, HEAD, ())


DROPPED = """
  alter table pgflow.flows drop constraint slug_is_valid;
  alter table pgflow.steps drop constraint steps_step_slug_check;
  drop index pgflow.idx_step_tasks_queued_msg;
"""


def test_checks_and_an_index_that_somebody_has_dropped_are_named(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    dsn = database_at("core_0_16_0")
    connect(dsn).execute(DROPPED.encode())
    with pytest.raises(PgflowMigrateError) as caught:
        upgrade(dsn)
    assert [detail.partition(" is missing")[0] for detail in caught.value.details] == [
        "constraint flows.slug_is_valid",
        "constraint steps.steps_step_slug_check",
        "index step_tasks.idx_step_tasks_queued_msg",
    ]


def test_the_revisions_sql_copes_without_them(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    """The script that --sql prints compares no catalogue first."""
    session = connect(database_at("core_0_16_0"))
    session.execute(DROPPED.encode())
    folder = resources.revision_sql("queue_identity")
    for name in ("functions/is_valid_slug", "slug_rules", "backfill"):
        session.execute((folder / f"{name}.sql").read_text(encoding="utf-8").encode())
    assert session.execute(
        "select conname from pg_constraint where conname in ('slug_is_valid', 'steps_step_slug_check')"
        " and convalidated order by 1"
    ).fetchall() == [{"conname": "slug_is_valid"}, {"conname": "steps_step_slug_check"}]
