"""The script that ``--sql`` prints leaves what the command leaves, or nothing."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import CompletedProcess

import psycopg
import pytest

from pgflow_migrate.replay import catalogue
from pgflow_migrate.servers import Server
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.script import upgrade_script
from pgflow_migrate.upgrade.session import AMONG_WORKERS, Fence

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


@pytest.mark.parametrize(
    ("release", "ledger"),
    [("core_0_15_0", "without ledger"), ("core_0_15_1", "with ledger"), ("core_0_15_1", "without ledger")],
)
def test_a_script_from_a_release_leaves_the_same(
    database_at: Callable[[str], str], script: Callable[..., str], release: str, ledger: str
) -> None:
    by_command, by_script = database_at(release), database_at(release)
    if ledger == "without ledger":
        for dsn in (by_command, by_script):
            run(dsn, "drop schema pgflow_migrate cascade")
    upgrade(by_command)
    run(by_script, script(f"{release}:head"))
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
    made = script("core_0_16_0:head", "-x", "lock_timeout=200ms", "-x", "max_wait=200ms")
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


# Scripts that are refused ---------------------------------------------------------------------------------

Psql = Callable[..., "CompletedProcess[str]"]

OUTSIDE = "ERROR:  25P01: DECLARE CURSOR can only be used in transaction blocks"


@pytest.fixture
def psql(server: Server, tmp_path: Path) -> Psql:
    """``psql(dsn, script, *options)``; errors come with their SQLSTATE."""
    program = str(server.bin_dir / "psql") if server.bin_dir else shutil.which("psql")
    if program is None or not Path(program).is_file():
        pytest.skip("NOT CHECKED: there is no psql here, neither the server's nor one on the path")

    def execute(dsn: str, script: str, *options: str) -> CompletedProcess[str]:
        file = tmp_path / "upgrade.sql"
        file.write_text(script, encoding="utf-8")
        command = [program, "-X", "-q", "-v", "VERBOSITY=verbose", *options, "-f", str(file), dsn]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    return execute


def errors(done: CompletedProcess[str]) -> list[str]:
    """The errors that psql has told, without file name and line."""
    return re.findall(r"^psql:\S+:\d+: ((?:ERROR|FATAL):  .*)$", done.stderr, re.MULTILINE)


def at_work(database_at: Callable[[str], str]) -> str:
    """A database at 0.16.0 with a task in its queue."""
    dsn = database_at("core_0_16_0")
    run(dsn, "select pgflow.create_flow('Orders'); select pgflow.add_step('Orders', 'pack')")
    run(dsn, "select pgflow.start_flow('Orders', '{}')")
    return dsn


@pytest.mark.parametrize("transaction", [True, False])
def test_alembic_and_the_command_print_one_script(script: Callable[..., str], transaction: bool) -> None:
    by_alembic = script("core_0_16_0:head")
    made = upgrade_script("0.16.0", Fence(), transaction=transaction)
    words = [line for line in by_alembic.splitlines() if line in ("BEGIN;", "COMMIT;")]
    assert words == ["BEGIN;", "COMMIT;"]
    lines = [line for line in by_alembic.splitlines() if transaction or line not in words]
    assert [line for line in made.splitlines() if line] == [line for line in lines if line]


def test_without_begin_it_is_refused_outside_a_transaction(
    database_at: Callable[[str], str], psql: Psql, unchanged: Unchanged
) -> None:
    dsn = at_work(database_at)
    with unchanged(dsn):
        done = psql(dsn, upgrade_script("0.16.0", Fence(), transaction=False), "-v", "ON_ERROR_STOP=1")
    assert (done.returncode, errors(done)) == (3, [OUTSIDE])


def test_a_client_that_goes_on_after_that_is_disconnected(
    database_at: Callable[[str], str], psql: Psql, unchanged: Unchanged
) -> None:
    dsn = at_work(database_at)
    with unchanged(dsn):
        done = psql(dsn, upgrade_script("0.16.0", Fence(), transaction=False))
    assert errors(done) == [
        OUTSIDE,
        "FATAL:  57P01: terminating connection due to administrator command",
    ]
    assert "this script has to run in one transaction: nothing was changed" in done.stderr
    assert done.returncode == 2, "psql says that the connection was lost"


@pytest.mark.parametrize("options", [("-v", "ON_ERROR_STOP=1"), ()], ids=["stopping", "going on"])
@pytest.mark.parametrize("transaction", [True, False], ids=["with BEGIN", "without BEGIN"])
@pytest.mark.parametrize(
    ("obstacle", "release", "sqlstate"),
    [
        ("select pgmq.send('orders', '{}'::jsonb)", "0.16.0", "PF001"),
        (
            "insert into pgflow.workers (worker_id, queue_name, function_name)"
            " values (gen_random_uuid(), 'orders', 'packer')",
            "0.16.0",
            "PF003",
        ),
        ("select", "0.15.1", "P0001"),
    ],
    ids=["preflight", "live workers", "another release"],
)
def test_what_is_refused_changes_nothing(
    database_at: Callable[[str], str],
    psql: Psql,
    unchanged: Unchanged,
    obstacle: str,
    release: str,
    sqlstate: str,
    transaction: bool,
    options: tuple[str, ...],
) -> None:
    dsn = at_work(database_at)
    run(dsn, obstacle)
    made = upgrade_script(release, Fence(), transaction=transaction)
    with unchanged(dsn):
        done = psql(dsn, made, *options, *(() if transaction else ("-1",)))
    told = errors(done)
    assert told[0].startswith(f"ERROR:  {sqlstate}: ")
    assert {error.split(":")[1].strip() for error in told[1:]} <= {"25P02"}
    if options:
        assert (done.returncode, len(told)) == (3, 1)


@pytest.mark.parametrize(
    ("there", "wanted"),
    [
        ("core_0_15_0", "0.15.1"),
        ("core_0_15_1", "0.15.0"),
        ("core_0_15_1", "0.16.0"),
        ("core_0_16_0", "0.15.1"),
    ],
)
def test_another_release_is_refused_also_when_nothing_is_recorded(
    database_at: Callable[[str], str], unchanged: Unchanged, there: str, wanted: str
) -> None:
    dsn = database_at(there)
    run(dsn, "drop schema pgflow_migrate cascade")
    revision = f"core_{wanted.replace('.', '_')}"
    with unchanged(dsn), pytest.raises(psycopg.errors.RaiseException) as caught:
        run(dsn, upgrade_script(wanted, AMONG_WORKERS))
    assert caught.value.diag.message_primary == (
        f"this script starts from revision {revision}, but the database is of another release"
    )


def test_live_workers_can_be_overruled_in_the_script_too(
    database_at: Callable[[str], str], script: Callable[..., str]
) -> None:
    for made in (
        upgrade_script("0.16.0", AMONG_WORKERS),
        script("core_0_16_0:head", "-x", "allow_live_workers=true"),
    ):
        dsn = at_work(database_at)
        run(
            dsn,
            "insert into pgflow.workers (worker_id, queue_name, function_name)"
            " values (gen_random_uuid(), 'orders', 'packer')",
        )
        run(dsn, made)
        assert upgrade(dsn).already_current


def test_nothing_of_the_session_is_left_behind(database_at: Callable[[str], str]) -> None:
    dsn = at_work(database_at)
    names = ("search_path", "lock_timeout", "statement_timeout", "work_mem", "check_function_bodies")
    settings = ", ".join(f"current_setting('{name}') as {name}" for name in names)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("set statement_timeout = '1min'")
        before = connection.execute(f"select {settings}".encode()).fetchone()
        connection.execute(upgrade_script("0.16.0", Fence()).encode())
        assert connection.execute(f"select {settings}".encode()).fetchone() == before
        assert connection.execute("table pg_cursors").fetchall() == []
        held = connection.execute(
            "select from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'"
        )
        assert held.fetchall() == []
