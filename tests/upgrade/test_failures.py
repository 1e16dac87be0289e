"""What the server says, in the words of the toolkit: each SQLSTATE by itself, raised by a real server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta

import psycopg
import pytest
import sqlalchemy as sa
from alembic.util import CommandError

from pgflow_migrate import database
from pgflow_migrate.errors import (
    BlockedError,
    FenceError,
    LiveWorkersError,
    PgflowMigrateError,
    SqlFileError,
)
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server
from pgflow_migrate.upgrade import failures
from pgflow_migrate.upgrade.failures import explained
from pgflow_migrate.upgrade.session import Fence

FENCE = Fence(timedelta(seconds=1.5), timedelta(seconds=20))
AGAIN = "The database is unchanged. It is safe to repeat; pause workers and producers, or raise"


@pytest.fixture(scope="module")
def dsn(server: Server, templates: Templates) -> Iterator[str]:
    """A database without pgflow, which no test changes."""
    yield server.create_database("failures", template=templates.surroundings())
    server.drop_database("failures")


@pytest.fixture
def failure(dsn: str) -> Callable[..., PgflowMigrateError]:
    """The error that is made of an exception with this SQLSTATE, message, detail and hint."""

    def of(
        sqlstate: str,
        message: str = "so it is",
        detail: str = "",
        hint: str = "",
        *,
        file: str = "",
        fence: Fence = FENCE,
        doing: str = "upgrade",
    ) -> PgflowMigrateError:
        given = {"errcode": sqlstate, "message": message, "detail": detail, "hint": hint}
        using = ", ".join(f"{name} = $using${value}$using$" for name, value in given.items())
        with pytest.raises(PgflowMigrateError) as caught, explained(dsn, fence, doing):
            _execute(dsn, f"do $raise$ begin raise exception using {using}; end $raise$", file)
        return caught.value

    return of


def _execute(dsn: str, statement: str, file: str) -> None:
    """As a revision's file is executed, or as the rest of the upgrade's statements."""
    if file:
        with psycopg.connect(dsn) as connection:
            try:
                connection.execute(statement.encode())
            except psycopg.Error as error:
                raise SqlFileError("queue_identity", file, error) from error
    engine = database.engine(dsn)
    try:
        with engine.connect() as through_engine:
            through_engine.exec_driver_sql(statement)
    finally:
        engine.dispose()


Failing = Callable[..., PgflowMigrateError]


@pytest.mark.parametrize("sqlstate", ["55P03", "40P01"])
def test_a_lock_that_is_not_had_is_the_fences(failure: Failing, sqlstate: str) -> None:
    error = failure(sqlstate, file="fence.sql", doing="downgrade")
    assert type(error) is FenceError
    assert (
        error.message
        == {
            "55P03": "The locks for the downgrade were not obtained within 20 s (queue_identity/fence.sql).",
            "40P01": "A deadlock with another session ended the downgrade (queue_identity/fence.sql).",
        }[sqlstate]
    )
    assert error.remedy == f"{AGAIN} --lock-timeout and --max-wait."
    assert error.blockers == ()


def test_the_longer_of_both_waits_is_named(failure: Failing) -> None:
    error = failure("55P03", fence=Fence(timedelta(seconds=1.5), timedelta(0)))
    assert (
        error.message == "The locks for the upgrade were not obtained within 1.5 s (outside the revisions)."
    )


def test_the_way_back_does_not_wait(failure: Failing) -> None:
    error = failure("55P03", file="back/refuse.sql", doing="downgrade")
    assert error.message == "A table of protocol 2 is in use (queue_identity/back/refuse.sql)."


def test_a_refusal_of_the_preflight_has_the_findings(failure: Failing) -> None:
    found = {
        "severity": "error", "code": "queue-absent", "flow_slug": "a\u2028b", "step_slug": None,
        "queue_name": "a", "count": 1, "samples": ["x"], "hint": "h",
    }  # fmt: skip
    error = failure("PF001", "1 finding.", "\n".join([json.dumps(found, ensure_ascii=False)] * 2))
    assert isinstance(error, BlockedError)
    assert error.message == "The preflight refuses: 1 finding."
    assert error.remedy == "The database is unchanged. Mend each finding as its hint says, then repeat."
    assert [(one.code, one.flow_slug, one.samples) for one in error.findings] == [
        ("queue-absent", "a\u2028b", ("x",))
    ] * 2


def test_a_last_look_that_fails_tells_twenty_violations_of_a_line_each(failure: Failing) -> None:
    lines = [
        json.dumps({"check": "c", "subject": f"flow\n{n}", "count": 2, "samples": ["s"], "hint": "h"})
        for n in range(21)
    ]
    error = failure("PF004", "21 violations", "\n".join(lines))
    assert type(error) is PgflowMigrateError
    assert error.message == "The upgrade does not pass its own last look: 21 violations."
    assert error.remedy == (
        "The database is unchanged. Look for triggers and event triggers that change what the upgrade writes."
    )
    assert error.details == tuple(f"c: flow {n}: 2: s; …. h" for n in range(20))


def test_live_workers_are_named(failure: Failing) -> None:
    worker = {
        "worker_id": "w", "function_name": "f\u2028g", "queue_name": "q", "start_mode": "http",
        "last_heartbeat_at": "2026-01-02T03:04:05+00:00", "heartbeat_age": 7.0,
    }  # fmt: skip
    error = failure("PF003", "1 worker is at work", json.dumps(worker, ensure_ascii=False), "Stop\nit.")
    assert isinstance(error, LiveWorkersError)
    assert error.message == "The upgrade refuses: 1 worker is at work."
    assert error.remedy == "Stop it. --allow-live-workers overrules this."
    assert [(one.worker_id, one.function_name, one.heartbeat_age) for one in error.workers] == [
        ("w", "f\u2028g", 7.0)
    ]


@pytest.mark.parametrize(
    ("hint", "remedy"), [("Wait for\nit.", "Wait for it."), ("", "The database is unchanged.")]
)
def test_runs_of_protocol_2_block_the_way_back(failure: Failing, hint: str, remedy: str) -> None:
    error = failure("PF008", "there are runs", hint=hint, doing="downgrade")
    assert type(error) is BlockedError
    assert (error.message, error.remedy) == ("The downgrade refuses: there are runs.", remedy)


@pytest.mark.parametrize("sqlstate", ["08006", "57P01", "57014"])
def test_a_server_that_ends_it_may_be_asked_again(failure: Failing, sqlstate: str) -> None:
    error = failure(sqlstate, "that is\n all.", file="backfill.sql")
    assert type(error) is PgflowMigrateError
    assert error.message == "The server ended the upgrade (queue_identity/backfill.sql): that is all."
    assert error.remedy == "The database is unchanged. It is safe to repeat."


def test_any_other_failure_is_told_with_its_state_and_twenty_lines_of_detail(failure: Failing) -> None:
    error = failure("23505", "twice", "\n".join(f"line  {n}" for n in range(21)), "Once\nis enough.")
    assert type(error) is PgflowMigrateError
    assert error.message == "The upgrade failed (outside the revisions): twice (SQLSTATE 23505)."
    assert error.remedy == "The database is unchanged. Once is enough."
    assert error.details == tuple(f"line {n}" for n in range(20))
    assert failure("23505").remedy == "The database is unchanged."


def test_a_right_that_is_missing_though_all_is_there_is_told_in_general(failure: Failing) -> None:
    error = failure("42501", "not you", file="slug_rules.sql")
    assert error.message == "The role lacks a right (queue_identity/slug_rules.sql): not you."
    assert error.remedy.startswith("The database is unchanged. The upgrade needs the owner of schema pgflow,")


OWNERS = "failures_most", "failures_two", "failures_one"
ROLES = (*OWNERS, "failures_stranger", "failures_member")


@pytest.fixture
def owned(server: Server, templates: Templates) -> Iterator[str]:
    """A database whose schema pgflow has things of several owners; one role is a member of the first."""
    dsn = server.create_database("failures_owned", template=templates.surroundings())
    with psycopg.connect(dsn, autocommit=True) as connection:
        for role in ROLES:
            connection.execute(f"create role {role} login noinherit".encode())
        connection.execute(b"grant failures_most to failures_member")
        connection.execute(b"create schema pgflow authorization failures_most")
        for number, owner in enumerate((0, 0, 1, 1, 2)):
            connection.execute(f"create table pgflow.t{number} ()".encode())
            connection.execute(f"alter table pgflow.t{number} owner to {OWNERS[owner]}".encode())
        yield dsn
        connection.execute(f"drop owned by {', '.join(ROLES)} cascade".encode())
        connection.execute(f"drop role {', '.join(ROLES)}".encode())
    server.drop_database("failures_owned")


def not_entitled(dsn: str, role: str) -> tuple[str, str]:
    """What a role is told that may not create in schema pgflow."""
    dsn = psycopg.conninfo.make_conninfo(dsn, user=role)
    with pytest.raises(PgflowMigrateError) as caught, explained(dsn, FENCE):
        _execute(dsn, "create table pgflow.mine ()", "")
    return caught.value.message, caught.value.remedy.removeprefix("The database is unchanged. ")


def test_of_several_owners_the_one_that_owns_most_is_to_be_asked(owned: str) -> None:
    assert not_entitled(owned, "failures_stranger") == (
        'Role "failures_stranger" may not change schema pgflow, which is owned by "failures_most",'
        ' "failures_two", "failures_one" (permission denied for schema pgflow).',
        'To run it with the owner\'s rights, connect as "failures_most",'
        ' or grant it: grant "failures_most" to "failures_stranger".',
    )
    assert not_entitled(owned, "failures_member")[1] == (
        "To run it with the owner's rights, add options='-c role=failures_most' to the connection string"
        " (it is a member of that role)."
    )


def test_nobody_is_told_to_become_a_superuser(owned: str) -> None:
    with psycopg.connect(owned, autocommit=True) as connection:
        connection.execute(b"reassign owned by failures_most to postgres")
    assert not_entitled(owned, "failures_stranger") == (
        'Role "failures_stranger" may not change schema pgflow, which is owned by "postgres",'
        ' "failures_two", "failures_one" (permission denied for schema pgflow).',
        'To run it with the owner\'s rights, connect as "postgres".',
    )


def test_errors_without_a_state_are_of_the_connection(dsn: str) -> None:
    with pytest.raises(PgflowMigrateError) as caught, explained(dsn, FENCE):
        raise psycopg.OperationalError("the connection is lost.")
    assert (
        caught.value.message
        == "The server ended the upgrade (outside the revisions): the connection is lost."
    )
    with pytest.raises(PgflowMigrateError) as caught, explained(dsn, FENCE):
        raise CommandError("Can't locate revision.")
    assert str(caught.value) == "Can't locate revision."


def test_what_is_not_of_the_database_is_left_as_it_is(dsn: str) -> None:
    ours = PgflowMigrateError("ours")
    other = sa.exc.DBAPIError("select 1", None, ValueError("no error of psycopg"))
    for error in (ours, other, KeyError("x")):
        with pytest.raises(type(error)) as caught, explained(dsn, FENCE):
            raise error
        assert caught.value is error


def test_who_is_asked_once_more_is_asked_in_a_transaction_that_cannot_write(dsn: str) -> None:
    asked = failures._ask(dsn, "select current_setting('transaction_read_only') as read_only")
    assert [row["read_only"] for row in asked] == ["on"]
    # Nobody else's functions are called.
    assert failures._ask(dsn, "show search_path") == [{"search_path": "pg_catalog, pg_temp"}]
    assert failures._ask(dsn, "create table pgmq.mine ()") == []


def test_who_cannot_be_asked_adds_nothing() -> None:
    with pytest.raises(FenceError) as caught, explained("host=/nonexistent", FENCE):
        raise psycopg.errors.LockNotAvailable("no")
    assert caught.value.blockers == ()
