"""Old cores from a folder of released migrations; here the folder is written from our own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pgflow_migrate import database, resources
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.replay import baseline
from pgflow_migrate.replay.results import Outcome
from pgflow_migrate.replay.run import run_scenario
from pgflow_migrate.replay.scenario import load
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

HARDENING = "20260904095427_pgflow_task_lifecycle_hardening.sql"
REMOVAL = "20260907082520_pgflow_remove_legacy_flow_compilation.sql"


@pytest.fixture(scope="module")
def migrations(server: Server, templates: Templates, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """0.15.1 as one migration, 0.16.0 as the next, with the names that the installer gives them."""
    folder = tmp_path_factory.mktemp("migrations")
    if server.bin_dir is None:
        pytest.skip("pg_dump of the server's version is not on this machine")
    dump = subprocess.run(
        [
            server.bin_dir / "pg_dump",
            "--schema=pgflow",
            "--schema-only",
            "--no-owner",
            f"--dbname={server.dsn(templates.at('core_0_15_1'))}",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    plain = "\n".join(line for line in dump.splitlines() if not line.startswith("\\"))
    (folder / HARDENING).write_text(plain)
    changes = sorted(resources.revision_sql("core_0_16_0").rglob("*.sql"))
    (folder / f"20261001120000_{REMOVAL}").write_text("\n".join(path.read_text() for path in changes))
    (folder / "20261101000000_pgflow_later.sql").write_text("select 1/0;")
    (folder / "20260101000000_unrelated.sql").write_text("select 1/0;")
    return folder


def test_files_are_chosen_by_the_migrations_own_stamp(migrations: Path) -> None:
    names = [path.name for path in baseline.files(migrations, "core_0_16_0")]
    assert names == [HARDENING, f"20261001120000_{REMOVAL}"]
    assert [path.name for path in baseline.files(migrations, "core_0_15_1")] == [HARDENING]


def test_a_folder_that_does_not_reach_the_release_is_refused(migrations: Path) -> None:
    with pytest.raises(PgflowMigrateError, match="holds no migration 20260607175525_pgflow_"):
        baseline.files(migrations, "core_0_15_0")


def test_a_database_from_migrations_has_no_ledger_and_no_later_function(
    server: Server, migrations: Path
) -> None:
    dsn = Templates(server, baseline_sql=migrations).clone("core_0_16_0", "from_migrations")
    try:
        with database.connect(dsn) as connection:
            found = connection.execute(
                "select to_regnamespace('pgflow_migrate') is null,"
                " to_regprocedure('pgflow.ensure_flow_compiled(text, jsonb)') is not null,"
                " to_regprocedure('pgflow.ensure_flow_compiled(text, jsonb, boolean)') is null"
            ).fetchone()
        assert found == (True, True, True)
    finally:
        server.drop_database("from_migrations")


def test_a_failing_migration_is_named(server: Server, migrations: Path, tmp_path: Path) -> None:
    (tmp_path / HARDENING).write_text("create schema pgflow;")
    (tmp_path / REMOVAL).write_text("select nonsense;")
    with pytest.raises(PgflowMigrateError, match=f"{REMOVAL} failed: column .nonsense. does not exist"):
        Templates(server, baseline_sql=tmp_path).at("core_0_16_0")


@pytest.mark.parametrize("name", ["every_status", "slug_trailing_underscore"])
def test_scenarios_run_on_a_database_from_migrations(server: Server, migrations: Path, name: str) -> None:
    scenario = load(resources.fixtures() / "0.16.0" / name)
    result = run_scenario(server, Templates(server, baseline_sql=migrations), scenario)
    assert result.details == ()
    assert result.outcome is Outcome.AS_EXPECTED
