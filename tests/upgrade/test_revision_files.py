"""Files in alembic/versions that are not as the released ones are."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pgflow_migrate import resources
from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, PgflowMigrateError
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.status import read_status

Unchanged = Callable[[str], AbstractContextManager[None]]
REVISION = (
    'revision = "stray"\ndown_revision = "dirty_runs"\n\n\ndef upgrade() -> None:\n    """Nothing."""\n'
)


@pytest.fixture
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of revisions, in a copy of the Alembic environment that the toolkit then uses."""
    shutil.copytree(resources.root() / "alembic", tmp_path / "alembic")
    shutil.copy(resources.alembic_ini(), tmp_path)
    monkeypatch.setattr(resources, "root", lambda: tmp_path)
    return tmp_path / "alembic" / "versions"


def test_a_revision_that_alembic_makes_is_found_by_its_checksum(
    versions: Path, database_at: Callable[[str], str]
) -> None:
    ini = str(versions.parents[1] / "alembic.ini")
    command = [
        sys.executable,
        "-m",
        "alembic",
        "-c",
        ini,
        "revision",
        "--rev-id",
        "later",
        "-m",
        "Some words",
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    assert (versions / "later.py").is_file()
    dsn = database_at("core_0_16_0")
    assert read_status(dsn).pending == ("queue_identity", "dirty_runs", "later")
    assert upgrade(dsn).revision == "later"
    assert upgrade(dsn).already_current


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("other.py", REVISION, 'Revision "stray" is not in a file of its own name, stray.py.'),
        (
            "notes.py",
            "",
            "The revisions cannot be loaded: Could not determine revision id from filename notes.py.",
        ),
        ("broken.py", "revision = (", "The revisions cannot be loaded: '(' was never closed"),
    ],
)
def test_a_stray_file_is_one_sentence(
    versions: Path,
    database_at: Callable[[str], str],
    unchanged: Unchanged,
    name: str,
    content: str,
    message: str,
) -> None:
    dsn = database_at("core_0_15_1")  # before the files are spoilt, of which its template is made
    (versions / name).write_text(content, encoding="utf-8")
    with unchanged(dsn):
        for call in (upgrade, read_status):
            with pytest.raises(PgflowMigrateError) as caught:
                call(dsn)
            assert caught.value.exit_code == EXIT_COULD_NOT_RUN
            assert caught.value.message.startswith(message[:70])
            assert str(versions) in caught.value.remedy
