"""docs/python.md: its examples do what they say, and its reference is that of today's code."""

from __future__ import annotations

import importlib
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests import reference

from pgflow_migrate.servers import Server
from pgflow_migrate.work_center import baseline

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)

GUIDE = reference.PAGE.read_text(encoding="utf-8").partition(reference.MARK)[0]

Connection = psycopg.Connection[dict[str, Any]]


def examples(*headings: str) -> list[str]:
    """The Python blocks of these sections, in order."""
    sections = dict(part.split("\n", 1) for part in GUIDE.split("\n## ")[1:])
    return [block for heading in headings for block in BLOCK.findall(sections[heading])]


def run(blocks: list[str], **given: object) -> dict[str, Any]:
    names: dict[str, Any] = dict(given)
    for block in blocks:
        exec(compile(block, str(reference.PAGE), "exec"), names)  # noqa: S102 - our own examples
    return names


def test_the_guide_upgrades_a_database_and_works_in_it(
    database_at: Callable[[str], str],
    connect: Callable[[str], Connection],
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect("store.db") as store:
        baseline.create(store, example=True)
    store.close()
    dsn = database_at("core_0_16_0")
    connect(dsn).execute("select pgflow.create_flow('orders')")
    before = ("Audit", "Export and replay", "Upgrade", "Verify")
    after = ("Work", "Protocol 2", "Canonical JSON", "Work Center", "Errors")
    assert len(examples(*before, *after)) + 1 == len(BLOCK.findall(GUIDE))
    run(examples(*before, *after), dsn=dsn, kind=server.admin_dsn)
    printed = capsys.readouterr().out
    assert "info backfill-steps" not in printed  # the flow has no steps
    assert "info point-in-time None 5 " in printed
    assert "('queue_identity', 'dirty_runs')" in printed
    assert re.search(r"^queue_identity: \d+\.\d s$", printed, re.MULTILINE)
    assert "0.16.0 is now dirty_runs" in printed
    assert re.search(r"^now at 35; as it was before: store\.db\.before-23-", printed, re.MULTILINE)


def test_the_guide_stops_at_what_blocks_an_upgrade(
    database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    dsn = database_at("core_0_16_0")
    connect(dsn).execute("select pgflow.create_flow('bad__slug')")
    with pytest.raises(SystemExit, match=r"^Mend these first\.$"):
        run(examples("Audit"), dsn=dsn)


def test_the_guide_makes_databases_for_tests(server: Server) -> None:
    with psycopg.connect(server.admin_dsn) as connection:
        count = "select count(*) from pg_database"
        before = connection.execute(count).fetchone()
        run(examples("Databases for tests"), kind=server.admin_dsn)
        connection.rollback()
        assert connection.execute(count).fetchone() == before


def test_the_reference_is_of_todays_code() -> None:
    text = reference.PAGE.read_text(encoding="utf-8")
    assert text == reference.page(text), "make api writes it anew"


@pytest.mark.parametrize("module", reference.MODULES)
def test_every_public_name_is_there_and_described(module: str) -> None:
    found = importlib.import_module(module)
    names = reference.public(module)
    assert list(names) == list(found.__all__)
    for name in names:
        assert getattr(found, name) is not None
        assert reference.undocumented(module, name) == ()


def test_the_guide_imports_what_is_public_alone() -> None:
    imported = re.findall(r"^from (pgflow_migrate[\w.]*) import (.+)$", GUIDE, re.MULTILINE)
    assert len(imported) > 15
    for module, names in imported:
        for name in names.split(", "):
            name = name.partition(" as ")[0]
            assert f"{module}.{name}" in reference.MODULES or name in reference.public(module)


def test_importing_the_packages_imports_nothing_heavy() -> None:
    packages = [
        f"pgflow_migrate.{name}"
        for name in ("audit", "upgrade", "verify", "replay", "dirty_runs", "canonical_json", "errors")
    ]
    code = f"import sys, {', '.join(packages)}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"alembic", "jinja2", "psycopg", "rich", "sqlalchemy"} & set(done.stdout.split())


def test_a_name_that_is_not_public_is_missed_as_usual() -> None:
    package = importlib.import_module("pgflow_migrate.upgrade")
    with pytest.raises(
        AttributeError, match=r"^module 'pgflow_migrate\.upgrade' has no attribute 'upgarde'$"
    ):
        _ = package.upgarde
