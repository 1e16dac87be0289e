"""Databases that were not made by us: identified by their catalogue, then upgraded, in one transaction."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import psycopg
import pytest

from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, PgflowMigrateError
from pgflow_migrate.releases import catalogue
from pgflow_migrate.releases.chain import HEAD, REVISIONS, STARTS, release_of, revision_of
from pgflow_migrate.releases.comparison import Difference
from pgflow_migrate.releases.identify import SHOWN, Identification, identify, unknown_release
from pgflow_migrate.upgrade import ledger
from pgflow_migrate.upgrade.progress import Event, Found
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.status import read_status

CHAIN = list(REVISIONS)
Unchanged = Callable[[str], AbstractContextManager[None]]


def execute(dsn: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def foreign(database_at: Callable[[str], str]) -> Callable[[str], str]:
    """A database at a revision, as somebody else's migrations would have left it: without our ledger."""

    def make(revision: str) -> str:
        dsn = database_at(revision)
        execute(dsn, "drop schema if exists pgflow_migrate cascade")
        return dsn

    return make


@pytest.mark.parametrize("release", catalogue.releases())
def test_a_release_is_known_by_its_catalogue(foreign: Callable[[str], str], release: str) -> None:
    with psycopg.connect(foreign(revision_of(release))) as connection:
        found = identify(connection)
    assert (found.release, found.closest, found.empty) == (release, release, False)
    assert found.revision == revision_of(release)
    assert [difference for difference in found.differences if difference.matters] == []


def test_of_releases_that_are_as_close_the_newest_is_named(foreign: Callable[[str], str]) -> None:
    """0.15.0 and 0.15.1 differ in one constraint, and this database has neither's."""
    dsn = foreign("core_0_15_1")
    execute(dsn, "alter table pgflow.step_tasks drop constraint valid_status")
    with psycopg.connect(dsn) as connection:
        found = identify(connection)
    assert (found.release, found.closest) == (None, "0.15.1")


def test_a_database_without_pgflow_is_empty(database_at: Callable[[str], str]) -> None:
    with psycopg.connect(database_at("")) as connection:
        found = identify(connection)
    assert (found.release, found.closest, found.revision, found.empty) == (None, None, None, True)


def test_releases_and_revisions_name_each_other() -> None:
    for release, revision in (("0.16.0", "core_0_16_0"), ("queue_identity", "queue_identity")):
        assert revision_of(release) == revision
        assert release_of(revision) == release


@pytest.mark.parametrize("start", STARTS)
def test_a_foreign_database_is_adopted_and_upgraded(foreign: Callable[[str], str], start: str) -> None:
    dsn = foreign(start)
    heard: list[Event] = []
    result = upgrade(dsn, on_progress=heard.append)
    assert Found(release_of(start), start, recorded=False) in heard
    assert result.from_release == release_of(start)
    assert [applied.revision for applied in result.applied] == CHAIN[CHAIN.index(start) + 1 :]
    recorded = execute(dsn, "select name, checksum from pgflow_migrate.schema_migrations order by name")
    assert recorded == sorted(ledger.checksums(CHAIN).items())
    # Adopted and applied in one transaction.
    assert execute(dsn, "select count(distinct applied_at) from pgflow_migrate.schema_migrations") == [(1,)]
    assert execute(dsn, "table pgflow_migrate.alembic_version") == [(HEAD,)]


def test_a_database_that_is_already_there_is_adopted_as_it_is(foreign: Callable[[str], str]) -> None:
    dsn = foreign("core_0_16_0")
    before = execute(dsn, "select count(*) from pg_class where relnamespace = 'pgflow'::regnamespace")
    result = upgrade(dsn, "core_0_16_0")
    assert result.already_current
    names = execute(dsn, "select name from pgflow_migrate.schema_migrations order by name")
    assert names == [(name,) for name in CHAIN[:3]]
    assert execute(dsn, "select count(*) from pg_class where relnamespace = 'pgflow'::regnamespace") == before


def test_what_the_user_added_or_granted_is_no_obstacle(foreign: Callable[[str], str]) -> None:
    dsn = foreign("core_0_16_0")
    execute(
        dsn,
        """
        create table pgflow.notes (id bigint primary key);
        create index runs_by_input on pgflow.runs using gin (input);
        create function pgflow.prune_data_older_than(interval) returns void language sql as '';
        grant select on pgflow.runs to service_role;
        """,
    )
    with psycopg.connect(dsn) as connection:
        found = identify(connection)
    assert found.release == "0.16.0"
    assert {difference.subject for difference in found.differences} == {
        "table notes",
        "index runs.runs_by_input",
        "function prune_data_older_than(interval)",
        "table runs",
    }
    assert upgrade(dsn).from_release == "0.16.0"


def test_a_database_that_matches_no_release_is_refused_with_the_differences(
    foreign: Callable[[str], str], unchanged: Unchanged
) -> None:
    dsn = foreign("core_0_16_0")
    execute(
        dsn,
        """
        alter table pgflow.runs add column tenant text;
        drop index pgflow.idx_step_tasks_completed;
        create table pgflow.notes (id bigint primary key);
        """,
    )
    with unchanged(dsn), pytest.raises(PgflowMigrateError) as caught:
        upgrade(dsn)
    error = caught.value
    assert error.exit_code == EXIT_COULD_NOT_RUN
    assert error.message == (
        "Schema pgflow matches no known release; the closest is 0.16.0, from which 2 things differ."
    )
    assert error.details == (
        "column runs.tenant is not part of the release",
        "index step_tasks.idx_step_tasks_completed is missing",
    )


def test_a_schema_that_only_has_the_name_is_refused(
    database_at: Callable[[str], str], unchanged: Unchanged
) -> None:
    dsn = database_at("")
    execute(dsn, "create schema pgflow; create table pgflow.something (id int)")
    with unchanged(dsn), pytest.raises(PgflowMigrateError) as caught:
        upgrade(dsn)
    assert "matches no known release" in caught.value.message
    assert len(caught.value.details) == 21
    assert caught.value.details[-1].startswith("… and ")


def test_identifying_needs_no_rights_and_changes_nothing(
    foreign: Callable[[str], str], unchanged: Unchanged
) -> None:
    dsn = foreign("core_0_16_0")
    execute(dsn, "drop role if exists identify_nobody")
    execute(dsn, "create role identify_nobody login")
    try:
        with (
            unchanged(dsn),
            psycopg.connect(psycopg.conninfo.make_conninfo(dsn, user="identify_nobody")) as connection,
        ):
            connection.read_only = True
            assert identify(connection).release == "0.16.0"
    finally:
        execute(dsn, "drop role identify_nobody")


@pytest.mark.parametrize(
    ("recorded", "change", "message", "detail", "remedy"),
    [
        (
            "queue_identity",
            "",
            "The database records revision queue_identity, but schema pgflow is 0.16.0; from queue_identity ",
            "column step_tasks.queue_name is missing",
            'If the record is wrong, correct it: alembic -x dsn="…" stamp core_0_16_0',
        ),
        (
            "core_0_15_0",
            "",
            "The database records revision core_0_15_0, but schema pgflow is 0.16.0; from core_0_15_0 ",
            "",
            'If the record is wrong, correct it: alembic -x dsn="…" stamp core_0_16_0',
        ),
        (
            "core_0_16_0",
            "alter table pgflow.runs add column tenant text",
            "The database records revision core_0_16_0, but schema pgflow is of no known release"
            " (the closest is 0.16.0); from core_0_16_0 1 thing differs.",
            "column runs.tenant is not part of the release",
            "Undo these differences, then try again.",
        ),
        (
            "core_0_16_0",
            "drop schema pgflow cascade",
            "The database records revision core_0_16_0, but there is no schema pgflow.",
            "",
            "Check the connection string; if it is right, drop schema pgflow_migrate and try again.",
        ),
    ],
)
def test_a_record_that_the_catalogue_contradicts_is_refused_and_shown(
    database_at: Callable[[str], str],
    unchanged: Unchanged,
    recorded: str,
    change: str,
    message: str,
    detail: str,
    remedy: str,
) -> None:
    dsn = database_at("core_0_16_0")
    execute(dsn, f"update pgflow_migrate.alembic_version set version_num = '{recorded}'")
    if change:
        execute(dsn, change)
    with unchanged(dsn), pytest.raises(PgflowMigrateError) as caught:
        upgrade(dsn)
    assert type(caught.value) is PgflowMigrateError
    assert caught.value.exit_code == EXIT_COULD_NOT_RUN
    assert caught.value.message.startswith(message)
    assert not detail or detail in caught.value.details
    assert caught.value.remedy == remedy
    status = read_status(dsn)
    assert (status.disagreement, status.pending) == (caught.value.message, None)


@pytest.mark.parametrize(("number", "more"), [(SHOWN, ()), (SHOWN + 2, ("… and 2 more",))])
def test_the_first_differences_are_listed_and_the_others_counted(number: int, more: tuple[str, ...]) -> None:
    differences = tuple(Difference("missing", f"table t{n:02}") for n in range(number))
    error = unknown_release(Identification(None, "0.16.0", differences))
    assert error.details == (*(f"table t{n:02} is missing" for n in range(SHOWN)), *more)
    assert f"from which {number} things differ." in str(error)
