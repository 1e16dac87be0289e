"""The wheel, installed in an environment of its own, does in an empty folder what the checkout does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment into which only the built wheel was installed.

    The dependencies are lent by the running environment, so that nothing is downloaded twice.
    """
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    (wheel,) = folder.glob("*.whl")
    venv.create(folder / "env", with_pip=True)
    programs = folder / "env" / "bin"
    subprocess.run(
        [str(programs / "python"), "-m", "pip", "install", "--quiet", "--no-deps", str(wheel)],
        check=True,
        capture_output=True,
    )
    (site,) = (folder / "env" / "lib").glob("python*/site-packages")
    lent = [path for path in sys.path if path.endswith("site-packages")]
    (site / "lent.pth").write_text("\n".join(lent) + "\n", encoding="utf-8")
    return programs


def _run(programs: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [str(programs / "python"), "-m", "pgflow_migrate", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_package_that_runs_is_the_installed_one(installed: Path, tmp_path: Path) -> None:
    where = subprocess.run(
        [str(installed / "python"), "-c", "import pgflow_migrate.resources as r; print(r.root())"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert where == str(
        next((installed.parent / "lib").glob("python*")) / "site-packages/pgflow_migrate/_resources"
    )


def test_audit_upgrade_and_status_work(
    installed: Path, tmp_path: Path, database_at: Callable[[str], str]
) -> None:
    dsn = database_at("core_0_16_0")
    assert _run(installed, tmp_path, "audit", "--dsn", dsn).returncode == 0
    script = _run(installed, tmp_path, "audit", "--sql")
    assert (script.returncode, script.stdout) == (0, (ROOT / "audits/0.16.0.sql").read_text(encoding="utf-8"))
    upgraded = _run(installed, tmp_path, "upgrade", "--dsn", dsn, "--format", "json")
    assert upgraded.returncode == 0, upgraded.stderr
    assert json.loads(upgraded.stdout)
    assert "queue_identity" in _run(installed, tmp_path, "status", "--dsn", dsn).stdout


def test_the_pruning_helper_is_in_it(installed: Path, tmp_path: Path) -> None:
    printed = _run(installed, tmp_path, "prune-helper", "--sql")
    expected = (ROOT / "helpers/prune_data_older_than.sql").read_text(encoding="utf-8")
    assert (printed.returncode, printed.stdout) == (0, expected)


def test_the_schemas_are_in_it(installed: Path, tmp_path: Path) -> None:
    printed = _run(installed, tmp_path, "audit", "--json-schema")
    expected = (ROOT / "schemas/audit.schema.json").read_text(encoding="utf-8")
    assert (printed.returncode, printed.stdout) == (0, expected)


def test_a_scenario_replays_from_the_installed_fixtures(installed: Path, tmp_path: Path) -> None:
    replayed = _run(installed, tmp_path, "replay", "--scenario", "empty*", "--format", "json")
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)
