"""The plain ``alembic`` command goes the same way as ours, and leaves the same behind."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pgflow_migrate import resources
from pgflow_migrate.dsn import ENVIRONMENT_VARIABLES, NAMING_VARIABLES
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_COULD_NOT_RUN, EXIT_FENCE, PgflowMigrateError
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.replay import catalogue
from pgflow_migrate.upgrade.run import upgrade

Alembic = Callable[..., "CompletedProcess[str]"]
Unchanged = Callable[[str], contextlib.AbstractContextManager[None]]


def execute(dsn: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def what_is_left(dsn: str) -> tuple[object, ...]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        facts = catalogue.facts(connection, ["pgflow", "pgflow_migrate"])
        facts = {name: re.sub(r" file \d+$", "", fact) for name, fact in facts.items()}
    recorded = execute(dsn, "select name, checksum from pgflow_migrate.schema_migrations order by name")
    return facts, recorded, execute(dsn, "table pgflow_migrate.alembic_version")


def without_ledger(dsn: str) -> str:
    execute(dsn, "drop schema pgflow_migrate cascade")
    return dsn


@pytest.mark.parametrize("start", ["", "core_0_15_0", "core_0_15_0 without ledger"])
def test_it_leaves_the_same_as_our_command(
    database_at: Callable[[str], str], alembic: Alembic, start: str
) -> None:
    ours, plain = (database_at(start.split(" ")[0]) for _ in range(2))
    if "without" in start:
        without_ledger(ours)
        without_ledger(plain)
    upgrade(ours)
    done = alembic(plain, "upgrade", "head")
    assert done.returncode == 0, done.stderr
    left, expected = what_is_left(plain), what_is_left(ours)
    assert left == expected


def test_it_reports_current_and_history_and_check_of_heads(
    database_at: Callable[[str], str], alembic: Alembic, unchanged: Unchanged
) -> None:
    dsn = database_at("core_0_15_1")
    with unchanged(dsn):
        assert alembic(dsn, "current").stdout == "core_0_15_1\n"
        assert alembic(dsn, "current", "--check-heads").returncode != 0
        assert "core_0_15_0 -> core_0_15_1" in alembic(dsn, "history").stdout


def test_advice_names_the_configuration_where_it_is_not_at_hand(
    database_at: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told can be pasted, by those who have installed the package, too."""
    monkeypatch.chdir(resources.root())
    assert resources.alembic_call() == "alembic"
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    call = f"alembic -c {resources.alembic_ini()}"
    assert resources.alembic_call() == call
    with pytest.raises(PgflowMigrateError) as refused:
        upgrade(database_at(""), from_nothing=False)
    assert refused.value.remedy.endswith(f' To install pgflow: {call} -x dsn="…" upgrade head')
    folder.rmdir()
    assert resources.alembic_call() == call


def test_current_makes_no_schema_where_there_is_none(
    database_at: Callable[[str], str], alembic: Alembic, unchanged: Unchanged
) -> None:
    dsn = database_at("")
    with unchanged(dsn):
        done = alembic(dsn, "current")
    assert (done.returncode, done.stdout) == (0, "")


def recorded(dsn: str) -> tuple[list[tuple[object, ...]], list[tuple[object, ...]]]:
    names = execute(dsn, "select name from pgflow_migrate.schema_migrations order by name")
    return names, execute(dsn, "table pgflow_migrate.alembic_version")


AT_0_16_0 = ([("core_0_15_0",), ("core_0_15_1",), ("core_0_16_0",)], [("core_0_16_0",)])


@pytest.mark.parametrize("options", [(), ("--purge",)])
@pytest.mark.parametrize(
    "wrong",
    [
        "drop schema pgflow_migrate cascade",
        "update pgflow_migrate.alembic_version set version_num = 'core_0_15_0'",
        "delete from pgflow_migrate.schema_migrations where name <> 'core_0_15_0'",
        "delete from pgflow_migrate.alembic_version",
    ],
)
def test_a_stamp_of_what_is_there_corrects_version_table_and_ledger(
    database_at: Callable[[str], str], alembic: Alembic, wrong: str, options: tuple[str, ...]
) -> None:
    dsn = database_at("core_0_16_0")
    execute(dsn, wrong)
    done = alembic(dsn, "stamp", *options, "core_0_16_0")
    assert done.returncode == 0, done.stderr
    assert recorded(dsn) == AT_0_16_0


@pytest.mark.parametrize("options", [(), ("--purge",)])
@pytest.mark.parametrize("target", ["head", "core_0_15_0", "base"])
def test_a_stamp_of_anything_else_is_refused(
    database_at: Callable[[str], str],
    alembic: Alembic,
    unchanged: Unchanged,
    target: str,
    options: tuple[str, ...],
) -> None:
    dsn = database_at("core_0_16_0")
    with unchanged(dsn):
        done = alembic(dsn, "stamp", *options, target)
    named = HEAD if target == "head" else target
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert f"error: The database cannot be stamped {named}: schema pgflow is 0.16.0.\n" in done.stderr
    assert 'To record what is there: alembic -x dsn="…" stamp core_0_16_0\n' in done.stderr


@pytest.mark.parametrize("target", ["base", "head"])
def test_a_database_without_version_is_stamped_no_better(
    database_at: Callable[[str], str], alembic: Alembic, unchanged: Unchanged, target: str
) -> None:
    dsn = without_ledger(database_at("core_0_16_0"))
    with unchanged(dsn):
        assert alembic(dsn, "stamp", target).returncode == EXIT_COULD_NOT_RUN
    dsn = database_at("")
    with unchanged(dsn):
        done = alembic(dsn, "stamp", "head")
    assert "cannot be stamped dirty_runs: there is no schema pgflow." in done.stderr


def test_an_unknown_catalogue_is_not_stamped(
    database_at: Callable[[str], str], alembic: Alembic, unchanged: Unchanged
) -> None:
    dsn = without_ledger(database_at("core_0_16_0"))
    execute(dsn, "alter table pgflow.runs add column tenant text")
    with unchanged(dsn):
        done = alembic(dsn, "stamp", "core_0_16_0")
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert "matches no known release; the closest is 0.16.0, from which 1 thing differs." in done.stderr


def test_a_downgrade_is_refused(
    database_at: Callable[[str], str], alembic: Alembic, unchanged: Unchanged
) -> None:
    dsn = database_at("core_0_16_0")
    with unchanged(dsn):
        done = alembic(dsn, "downgrade", "-1")
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert (
        "There is no downgrade from core_0_16_0: data that only the newer schema can hold would be lost."
        in done.stderr
    )
    assert "Restore the backup that was taken before the upgrade." in done.stderr
    assert "Traceback" not in done.stderr


def test_a_changed_checksum_is_refused(database_at: Callable[[str], str], alembic: Alembic) -> None:
    dsn = database_at("core_0_15_1")
    execute(dsn, "update pgflow_migrate.schema_migrations set checksum = 'x' where name = 'core_0_15_1'")
    done = alembic(dsn, "upgrade", "core_0_16_0")
    assert done.returncode == EXIT_BLOCKED
    assert 'The files of revision "core_0_15_1" are not those that were applied' in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [("upgrade", "head"), ("current",)])
def test_a_newer_version_is_refused(
    database_at: Callable[[str], str], alembic: Alembic, command: tuple[str, ...]
) -> None:
    dsn = database_at("core_0_15_1")
    execute(dsn, "update pgflow_migrate.alembic_version set version_num = 'from_the_future'")
    done = alembic(dsn, *command)
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert "This database was upgraded by a newer pgflow-migrate" in done.stderr


def test_an_unknown_target_is_said_in_one_sentence(
    database_at: Callable[[str], str], alembic: Alembic, unchanged: Unchanged
) -> None:
    dsn = database_at("core_0_15_1")
    with unchanged(dsn):
        done = alembic(dsn, "upgrade", "nonsense")
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert "error: Can't locate revision identified by 'nonsense'." in done.stderr
    assert "Traceback" not in done.stderr


def test_the_last_x_argument_wins_and_an_unknown_one_is_refused(
    database_at: Callable[[str], str], alembic: Alembic
) -> None:
    dsn = database_at("core_0_15_1")
    done = alembic("postgresql://ann:s3cr3t@127.0.0.1:1/app", "-x", f"dsn={dsn}", "current")
    assert (done.returncode, done.stdout) == (0, "core_0_15_1\n")
    done = alembic(dsn, "-x", "dns=typo", "current")
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert 'error: There is no -x argument "dns".' in done.stderr


def test_without_an_x_argument_the_environment_names_the_database(
    database_at: Callable[[str], str], alembic: Alembic, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = database_at("core_0_15_1")
    done = alembic("", "current")
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert "The connection string that was given is empty." in done.stderr

    command = [sys.executable, "-m", "alembic", "-c", str(resources.alembic_ini()), "current"]
    environment = {**os.environ, "DATABASE_URL": dsn}
    found = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert found.stdout == "core_0_15_1\n"


def test_a_connection_failure_is_one_sentence_without_the_password(alembic: Alembic) -> None:
    done = alembic("postgresql://ann:s3cr%40t@127.0.0.1:1/app", "upgrade", "head")
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert "error: No server listens at 127.0.0.1:1." in done.stderr
    assert "s3cr" not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_its_wait_for_locks_is_bounded_too(
    database_at: Callable[[str], str],
    alembic: Alembic,
    unchanged: Unchanged,
    holding: Callable[[str, str], contextlib.AbstractContextManager[int]],
) -> None:
    dsn = database_at("core_0_16_0")
    with unchanged(dsn), holding(dsn, "lock table pgflow.runs in row exclusive mode") as pid:
        done = alembic(dsn, "-x", "lock_timeout=200ms", "-x", "max_wait=200ms", "upgrade", "head")
    assert done.returncode == EXIT_FENCE
    assert "The locks for the upgrade were not obtained within 0.2 s" in done.stderr
    assert f'pid {pid} (user postgres, "the holder", idle in transaction, in its transaction' in done.stderr
    assert "s ago: lock table pgflow.runs in row exclusive mode) holds pgflow.runs" in done.stderr


def test_a_bad_lock_timeout_is_refused(database_at: Callable[[str], str], alembic: Alembic) -> None:
    done = alembic(database_at("core_0_16_0"), "-x", "lock_timeout=5", "upgrade", "head")
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert "-x lock_timeout: '5' is no duration" in done.stderr


def test_the_version_table_is_out_of_the_users_way(database_at: Callable[[str], str]) -> None:
    dsn = database_at("core_0_15_0")
    tables = execute(
        dsn,
        "select n.nspname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where c.relname in ('alembic_version', 'schema_migrations')",
    )
    assert tables == [("pgflow_migrate",), ("pgflow_migrate",)]
    assert conninfo_to_dict(dsn)["dbname"]


def test_without_any_name_no_database_is_guessed() -> None:
    command = [sys.executable, "-m", "alembic", "-c", str(resources.alembic_ini()), "upgrade", "head"]
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in (*NAMING_VARIABLES, *ENVIRONMENT_VARIABLES)
    }
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert done.stderr.startswith("error: No database was named.\nGive --dsn (alembic: -x dsn=…), or set ")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("by", ["role", "database", "PGOPTIONS"])
def test_a_read_only_default_is_not_overridden(
    database_at: Callable[[str], str],
    alembic: Alembic,
    unchanged: Unchanged,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
) -> None:
    dsn = database_at("core_0_16_0")
    name = conninfo_to_dict(dsn)["dbname"]
    if by == "PGOPTIONS":
        monkeypatch.setenv("PGOPTIONS", "-c default_transaction_read_only=on")
    else:
        of = f"role postgres in database {name}" if by == "role" else f"database {name}"
        execute(dsn, f"alter {of} set default_transaction_read_only = on")
    with unchanged(dsn):
        with pytest.raises(PgflowMigrateError) as caught:
            upgrade(dsn)
        plain = alembic(dsn, "upgrade", "head")
    source = {"role": "database user", "PGOPTIONS": "client"}.get(by, by)
    assert caught.value.exit_code == plain.returncode == EXIT_COULD_NOT_RUN
    assert caught.value.message == (
        f"default_transaction_read_only is on here ({source}): this database is not to be changed."
    )
    assert f"error: {caught.value.message}\n{caught.value.remedy}\n" in plain.stderr
    assert "options='-c default_transaction_read_only=off'" in caught.value.remedy
    allowed = f"{dsn} options='-c default_transaction_read_only=off'"
    assert upgrade(allowed).revision == HEAD
