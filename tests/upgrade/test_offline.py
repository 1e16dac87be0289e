"""The script that ``alembic … --sql`` prints leaves what the command leaves."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from subprocess import CompletedProcess

import psycopg
import pytest

from pgflow_migrate.replay import catalogue
from pgflow_migrate.upgrade.run import upgrade

Alembic = Callable[..., "CompletedProcess[str]"]
Unchanged = Callable[[str], AbstractContextManager[None]]
Holding = Callable[[str, str], AbstractContextManager[int]]


def run(dsn: str, script: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(script.encode())


def what_is_left(dsn: str) -> tuple[object, ...]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        facts = catalogue.facts(connection, ["pgflow", "pgflow_migrate"])
        recorded = connection.execute(
            "select name, checksum from pgflow_migrate.schema_migrations order by name"
        ).fetchall()
        version = connection.execute("table pgflow_migrate.alembic_version").fetchall()
    # Comments on our own schema aside, all that is told apart is which file on disk a table has.
    return {name: re.sub(r" file \d+$", "", fact) for name, fact in facts.items()}, recorded, version


@pytest.fixture
def script(alembic: Alembic) -> Callable[..., str]:
    """The script for a range; made without any database."""

    def make(revisions: str, *options: str) -> str:
        done = alembic("host=/nonexistent", *options, "upgrade", revisions, "--sql")
        assert done.returncode == 0, done.stderr
        return done.stdout

    return make


@pytest.mark.parametrize("ledger", ["with ledger", "without ledger"])
def test_a_script_from_a_release_leaves_the_same(
    database_at: Callable[[str], str], script: Callable[..., str], ledger: str
) -> None:
    by_command, by_script = database_at("core_0_15_1"), database_at("core_0_15_1")
    if ledger == "without ledger":
        for dsn in (by_command, by_script):
            run(dsn, "drop schema pgflow_migrate cascade")
    upgrade(by_command)
    run(by_script, script("core_0_15_1:head"))
    left, expected = what_is_left(by_script), what_is_left(by_command)
    assert left == expected
    assert upgrade(by_script).already_current


def test_a_script_from_nothing_leaves_the_same(
    database_at: Callable[[str], str], script: Callable[..., str]
) -> None:
    by_command, by_script = database_at(""), database_at("")
    upgrade(by_command)
    run(by_script, script("head"))
    left, expected = what_is_left(by_script), what_is_left(by_command)
    assert left == expected


def test_a_script_for_another_release_is_refused_by_the_database(
    database_at: Callable[[str], str], script: Callable[..., str], unchanged: Unchanged
) -> None:
    dsn = database_at("core_0_15_0")
    made = script("core_0_15_1:head")
    with unchanged(dsn), pytest.raises(psycopg.errors.RaiseException) as caught:
        run(dsn, made)
    assert caught.value.diag.message_primary == (
        "this script starts from revision core_0_15_1, but the database is at core_0_15_0"
    )
    assert caught.value.diag.message_hint == "Make a script that starts from where the database is."


def test_a_script_bounds_its_wait_for_locks(
    database_at: Callable[[str], str], script: Callable[..., str], unchanged: Unchanged, holding: Holding
) -> None:
    dsn = database_at("core_0_16_0")
    made = script("core_0_16_0:head", "-x", "lock_timeout=200ms")
    with (
        unchanged(dsn),
        holding(dsn, "lock table pgflow.runs in row exclusive mode"),
        pytest.raises(psycopg.errors.LockNotAvailable),
    ):
        run(dsn, made)


def test_there_is_no_script_for_stamping(alembic: Alembic) -> None:
    """Nobody could tell whether it says the truth about the database that it is run on."""
    done = alembic("host=/nonexistent", "stamp", "core_0_15_0:core_0_16_0", "--sql")
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: A stamp has to look at the database, which --sql does not.\n" in done.stderr
