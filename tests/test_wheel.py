"""The sdist is whole; the wheel made from it does in an empty folder what the checkout does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Callable
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the sdist, and the wheel that was made from the sdist alone."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def sdist(built: Path) -> dict[str, str]:
    """The files of the sdist, its top folder left out, with their text; "" for a picture."""
    (path,) = built.glob("*.tar.gz")
    files = {}
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None, f"{member.name} is no file"
            name = member.name.split("/", 1)[1]
            files[name] = "" if name.endswith(".png") else file.read().decode()
    return files


@pytest.fixture(scope="module")
def wheel(built: Path) -> dict[str, str]:
    """The files of the wheel with their text."""
    (path,) = built.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name).decode() for name in archive.namelist()}


@pytest.fixture(scope="module")
def installed(built: Path) -> Path:
    """The folder of programs of an environment into which only the built wheel was installed.

    The dependencies are lent by the running environment, so that nothing is downloaded twice.
    """
    (path,) = built.glob("*.whl")
    venv.create(built / "env")
    programs = built / "env" / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python")]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", str(path)], check=True, capture_output=True)
    (site,) = (built / "env" / "lib").glob("python*/site-packages")
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


def _committed() -> set[str]:
    """The files that git knows, less those that are gone from the folder."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def test_the_sdist_has_what_git_has_and_nothing_else(sdist: dict[str, str]) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no checkout of git: an unpacked sdist, which cannot say what git has")
    assert set(sdist) - {"PKG-INFO"} == _committed()


def test_the_sdist_has_all_that_make_test_needs(sdist: dict[str, str]) -> None:
    needed = "LICENSE NOTICE Makefile alembic.ini audits/0.16.0.sql requirements/dev.txt tests/conftest.py"
    assert set(needed.split()) <= set(sdist)
    folders = {name.split("/", 1)[0] for name in sdist}
    assert folders >= {"alembic", "audits", "docs", "fixtures", "helpers", "schemas", "src", "tests"}
    assert not folders & {
        ".git",
        ".venv",
        ".hypothesis",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        "build",
        "dist",
    }
    assert not [name for name in sdist if name.endswith(".pyc")]


def test_the_wheel_has_the_package_its_resources_and_nothing_else(wheel: dict[str, str]) -> None:
    information = "pgflow_migrate-0.1.0.dist-info"
    package = ROOT / "src"
    code = {
        str(path.relative_to(package))
        for path in (package / "pgflow_migrate").rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    assert "pgflow_migrate/py.typed" in code
    resources = {
        f"pgflow_migrate/_resources/{path.relative_to(ROOT)}"
        for name in ("alembic.ini", "alembic", "audits", "helpers", "schemas", "fixtures")
        for path in [ROOT / name, *(ROOT / name).rglob("*")]
        if path.is_file() and path.suffix != ".pyc"
    }
    resources |= {f"pgflow_migrate/_resources/docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    about = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE", "licenses/NOTICE"}
    assert set(wheel) == code | resources | {f"{information}/{name}" for name in about}


def test_both_say_their_licence(sdist: dict[str, str], wheel: dict[str, str]) -> None:
    for text in (sdist["PKG-INFO"], wheel["pgflow_migrate-0.1.0.dist-info/METADATA"]):
        metadata = message_from_string(text)
        assert metadata["License-Expression"] == "Apache-2.0"
        assert metadata.get_all("License-File") == ["LICENSE", "NOTICE"]
    for name in ("LICENSE", "NOTICE"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert sdist[name] == wheel[f"pgflow_migrate-0.1.0.dist-info/licenses/{name}"] == text


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


def test_the_documents_are_in_it(installed: Path, tmp_path: Path) -> None:
    printed = _run(installed, tmp_path, "docs", "upgrade")
    expected = (ROOT / "docs/upgrade.md").read_text(encoding="utf-8")
    assert (printed.returncode, printed.stdout) == (0, expected)


def test_a_scenario_replays_from_the_installed_fixtures(installed: Path, tmp_path: Path) -> None:
    replayed = _run(installed, tmp_path, "replay", "--scenario", "empty*", "--format", "json")
    assert replayed.returncode == 0, replayed.stderr
    assert json.loads(replayed.stdout)
