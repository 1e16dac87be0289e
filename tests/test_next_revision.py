"""docs/next-revision.md works: what it shows, put into a copy of the checkout, upgrades databases."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```\w+ title=(\S+)(?: after=(\w+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOLDERS = ("alembic", "audits", "fixtures", "helpers", "schemas", "src")

Connection = psycopg.Connection[dict[str, Any]]


def put(path: Path, after: str | None, text: str) -> None:
    """A file of the page, a new last entry of a collection, or another value of a name."""
    if after is not None:
        before, found, rest = path.read_text(encoding="utf-8").partition(f"\n{after}")
        entries, end, rest = rest.partition("\n)\n" if after == "_CHECKS" else "\n}\n")
        assert found
        assert end
        path.write_text(f"{before}{found}{entries}\n{text.rstrip()}{end}{rest}", encoding="utf-8")
    elif path.exists():
        name = text.partition(" =")[0]
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        assert [line for line in lines if line.startswith(f"{name} = ")]
        changed = [text if line.startswith(f"{name} = ") else line for line in lines]
        path.write_text("".join(changed), encoding="utf-8")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout with the revision in it, its catalogue written down."""
    copy = tmp_path_factory.mktemp("checkout")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "alembic.ini", copy)
    blocks = BLOCK.findall((ROOT / "docs" / "next-revision.md").read_text(encoding="utf-8"))
    assert len(blocks) == 8
    for title, after, text in blocks:
        put(copy / title, after or None, text)
    done = run(copy, "pgflow_migrate.replay.snapshot")
    assert done.returncode == 0, done.stderr
    return copy


def run(copy: Path, module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("start", ["core_0_16_0", "dirty_runs"])
def test_a_database_is_upgraded_to_the_revision_of_the_page_and_verified(
    checkout: Path, database_at: Callable[[str], str], connect: Callable[[str], Connection], start: str
) -> None:
    dsn = database_at(start)
    session = connect(dsn)
    session.execute("select pgflow.create_flow('orders'); select pgflow.add_step('orders', 'pack')")
    done = run(checkout, "pgflow_migrate", "upgrade", "--dsn", dsn, "--format", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["revision"] == "step_notes"

    session.execute("update pgflow.steps set note = 'Fragile things first.'")
    (row,) = session.execute("select pgflow.step_note('orders', 'pack') as note").fetchall()
    assert row == {"note": "Fragile things first."}
    verified = run(checkout, "pgflow_migrate", "verify", "--dsn", dsn)
    assert verified.returncode == 0, verified.stdout + verified.stderr

    session.execute("update pgflow.steps set note = ' '")
    verified = run(checkout, "pgflow_migrate", "verify", "--dsn", dsn, "--format", "json")
    broken = [violation["check"] for violation in json.loads(verified.stdout)["violations"]]
    assert (verified.returncode, broken) == (3, ["step-note"])


def test_its_script_leaves_the_same(
    checkout: Path, database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    dsn = database_at("dirty_runs")
    done = run(checkout, "pgflow_migrate", "upgrade", "--sql", "--from", "dirty_runs")
    assert done.returncode == 0, done.stderr
    with psycopg.connect(dsn, autocommit=True) as session:
        session.execute(done.stdout.encode())
    verified = run(checkout, "pgflow_migrate", "verify", "--dsn", dsn)
    assert verified.returncode == 0, verified.stdout + verified.stderr
