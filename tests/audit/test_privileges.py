"""Auditing with few rights: what is lacking is a finding, never an SQL error."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.servers import Server

Database = psycopg.Connection[dict[str, Any]]
Audited = Callable[[Database], list[tuple[Any, ...]]]
Grant = Callable[..., None]

TABLES = ("pgflow.flows", "pgflow.steps", "pgflow.runs", "pgflow.step_tasks", "pgmq.meta")
QUEUES = ("pgmq.q_billing", "pgmq.q_orders")
SEQUENCES = ("pgmq.q_billing_msg_id_seq", "pgmq.q_orders_msg_id_seq")
ALL = (*TABLES, *QUEUES, *SEQUENCES)
MAIL = "hunter2-of-another-application"

_numbers = itertools.count(1)


@pytest.fixture
def database(database: Database) -> Database:
    """Two flows with work in flight, and an application's queue with a secret in it."""
    for slug in ("orders", "billing"):
        database.execute("select pgflow.create_flow(%s)", [slug])
        database.execute("select pgflow.add_step(%s, 'pack')", [slug])
        database.execute("select pgflow.start_flow(%s, '{}')", [slug])
    database.execute("select pgmq.create('mail')")
    database.execute("select pgmq.send('mail', to_jsonb(%s::text))", [MAIL])
    return database


@pytest.fixture
def role(database: Database, server: Server) -> Iterator[str]:
    """A role that may connect, and nothing else."""
    name = f'Auditor "{next(_numbers)}"'
    database.execute(sql.SQL("create role {} login").format(sql.Identifier(name)))
    # PGMQ's installation gives rights to pg_monitor and to nobody else.
    yield name
    database.execute(sql.SQL("drop owned by {0}; drop role {0}").format(sql.Identifier(name)))


@pytest.fixture
def grant(database: Database, role: str) -> Grant:
    """Give the role SELECT on tables, and USAGE on their schemas."""

    def granted(*tables: str) -> None:
        for table in tables:
            schema, name = table.split(".")
            database.execute(
                sql.SQL("grant usage on schema {} to {}").format(sql.Identifier(schema), sql.Identifier(role))
            )
            database.execute(
                sql.SQL("grant select on {} to {}").format(sql.Identifier(schema, name), sql.Identifier(role))
            )

    return granted


@pytest.fixture
def auditor(database: Database, role: str) -> Iterator[Database]:
    """A session of that role."""
    with psycopg.connect(
        database.info.dsn, user=role, autocommit=True, row_factory=psycopg.rows.dict_row
    ) as connection:
        yield connection


def lacking(*objects: str) -> list[tuple[Any, ...]]:
    rows = []
    for name in objects:
        slug = (
            name.removeprefix("pgmq.q_").removesuffix("_msg_id_seq")
            if name in (*QUEUES, *SEQUENCES)
            else None
        )
        rows.append(("error", "missing-privilege", slug, None, slug, 1, (name,)))
    return rows


def test_select_on_the_tables_and_usage_on_the_schemas_is_enough(
    auditor: Database, grant: Grant, audited: Audited, database: Database
) -> None:
    grant(*ALL)
    assert audited(auditor) == []
    assert run_audit(auditor).findings[:-1] == run_audit(database).findings[:-1]
    assert run_audit(auditor).findings[-1].samples[-1] == "2 messages in 2 queues"


def test_unrelated_queues_are_not_read(auditor: Database, grant: Grant, database: Database) -> None:
    """The role has no right on them, so that reading one would be an error."""
    grant(*ALL)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        auditor.execute("select * from pgmq.q_mail")
    for connection in (auditor, database):
        assert MAIL not in repr(run_audit(connection))


def test_without_any_right_each_missing_one_is_named_with_its_grant(
    auditor: Database, audited: Audited, role: str
) -> None:
    assert audited(auditor) == lacking(
        "pgflow", "pgflow.flows", "pgflow.runs", "pgflow.step_tasks", "pgflow.steps", "pgmq", "pgmq.meta"
    )
    quoted = '"' + role.replace('"', '""') + '"'
    assert [finding.hint for finding in run_audit(auditor).blocking] == [
        f"grant usage on schema pgflow to {quoted};",
        f"grant select on pgflow.flows to {quoted};",
        f"grant select on pgflow.runs to {quoted};",
        f"grant select on pgflow.step_tasks to {quoted};",
        f"grant select on pgflow.steps to {quoted};",
        f"grant usage on schema pgmq to {quoted};",
        f"grant select on pgmq.meta to {quoted};",
    ]


def test_rights_on_what_is_not_inspected_are_not_asked_for(
    auditor: Database, audited: Audited, database: Database
) -> None:
    """Neither on a pgflow that is of no known release, nor on a PGMQ that is too old."""
    database.execute("alter table pgflow.deps rename column created_at to made_at")
    *rest, release = audited(auditor)
    assert release[1] == "release-unexpected"
    assert rest == lacking("pgmq", "pgmq.meta")
    database.execute("alter table pgmq.meta rename column is_unlogged to unlogged")
    assert [finding[1] for finding in audited(auditor)] == ["pgmq-absent", "release-unexpected"]


def test_following_the_hints_leads_to_a_full_report(
    auditor: Database, audited: Audited, database: Database
) -> None:
    for _ in range(3):
        for finding in run_audit(auditor).blocking:
            database.execute(finding.hint.encode())
    assert audited(auditor) == []


@pytest.mark.parametrize("schema", ["pgflow", "pgmq"])
def test_a_schema_that_may_not_be_used_is_the_only_finding(
    schema: str, auditor: Database, grant: Grant, audited: Audited, database: Database, role: str
) -> None:
    """The rights on what is in it are no use without it, and nothing there is read."""
    grant(*ALL)
    database.execute(
        sql.SQL("revoke usage on schema {} from {}").format(sql.Identifier(schema), sql.Identifier(role))
    )
    assert audited(auditor) == lacking(schema)


@pytest.mark.parametrize("missing", ALL)
def test_one_missing_table_is_the_only_finding(
    missing: str, auditor: Database, grant: Grant, audited: Audited
) -> None:
    grant(*(table for table in ALL if table != missing))
    assert audited(auditor) == lacking(missing)


def test_what_can_be_inspected_is_still_reported(
    auditor: Database, grant: Grant, audited: Audited, database: Database
) -> None:
    grant("pgflow.flows", "pgflow.steps", "pgmq.meta")
    database.execute("select pgflow.create_flow('a__b'); select pgmq.drop_queue('a__b')")
    assert audited(auditor) == [
        *lacking("pgflow.runs", "pgflow.step_tasks", "pgmq.q_billing", "pgmq.q_orders"),
        ("error", "queue-absent", "a__b", None, "a__b", 1, ()),
        ("error", "slug-double-underscore", "a__b", None, None, 1, ()),
    ]


def test_rows_hidden_by_row_security_are_not_taken_for_absent(
    auditor: Database, grant: Grant, audited: Audited, database: Database, role: str
) -> None:
    grant(*ALL)
    database.execute("alter table pgflow.step_tasks enable row level security")
    database.execute("alter table pgmq.q_orders enable row level security")
    assert audited(database) == []
    assert audited(auditor) == lacking("pgflow.step_tasks", "pgmq.q_orders")
    quoted = '"' + role.replace('"', '""') + '"'
    hint = (
        f"Row security hides rows from {quoted}: run as a role with bypassrls or, unless it is forced,"
        " as the owner."
    )
    assert {finding.hint for finding in run_audit(auditor).blocking} == {hint}
    database.execute(sql.SQL("alter role {} bypassrls").format(sql.Identifier(role)))
    assert audited(auditor) == []
