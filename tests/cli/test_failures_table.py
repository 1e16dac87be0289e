"""The table of failures in CONTRIBUTING.md: each is really provoked, here or by the test that is named."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psycopg
import pytest
from click.testing import Result
from tests.cli import failures_table
from tests.cli.failures_table import FAILURES, Failure

from pgflow_migrate import errors
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server
from pgflow_migrate.work_center import baseline

Invoke = Callable[..., Result]

HERE = [row for row in FAILURES if row.provoke]
ELSEWHERE = [row for row in FAILURES if not row.provoke]


@pytest.fixture(scope="module")
def databases(server: Server, templates: Templates) -> Iterator[Mapping[str, str]]:
    """One for each name; a row leaves them as they were."""
    yield {
        "old": templates.clone("core_0_16_0", "failures_old"),
        "new": templates.clone("dirty_runs", "failures_new"),
        "none": server.create_database("failures_none", template=templates.surroundings()),
    }
    for name in ("old", "new", "none"):
        server.drop_database(f"failures_{name}")


def test_the_document_has_the_table() -> None:
    text = failures_table.DOCUMENT.read_text(encoding="utf-8")
    assert failures_table.written(text) == text, "python -m tests.cli.failures_table writes it anew"


@pytest.mark.parametrize("row", HERE, ids=lambda row: f"{row.command}: {row.when}")
def test_it_says_so_and_ends_so(
    row: Failure,
    invoke: Invoke,
    databases: Mapping[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGSERVICEFILE", "/nonexistent")
    monkeypatch.setattr(sys, "path", list(sys.path))  # where worker looks for its flow
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    for name, text in row.files:
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = places(row, databases, tmp_path)
    arguments = [argument.format(**found) for argument in shlex.split(row.provoke)]
    dsn = databases["new" if "{new}" in row.provoke else "old"] if row.before else ""
    if not dsn:
        result = invoke(*arguments)
    else:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(row.before.encode())
            try:
                result = invoke(*arguments)
            finally:
                connection.execute(row.after.encode())
    assert result.exit_code == row.exit_code, result.output
    if row.stdout:
        assert any(row.pattern.match(line) for line in result.stdout.splitlines()), result.stdout
        return
    (told,) = [line for line in result.stderr.splitlines() if re.match("[Ee]rror: ", line)]
    assert row.pattern.fullmatch(told.partition(": ")[2]), told
    assert "Traceback" not in result.stderr
    if told.startswith("error: "):
        assert result.stderr.splitlines()[-1] != told, "what to do is missing"


def places(row: Failure, databases: Mapping[str, str], folder: Path) -> dict[str, str]:
    """What the names in braces stand for."""
    found = {**databases, "store": str(folder / "store.db"), "tmp": str(folder)}
    if "{store}" in row.provoke:
        connection = sqlite3.connect(found["store"])
        baseline.create(connection, example=False)
        connection.commit()
        connection.close()
    return found


@pytest.mark.parametrize("row", ELSEWHERE, ids=lambda row: f"{row.command}: {row.when}")
def test_the_test_that_provokes_it_is_there(row: Failure) -> None:
    path, _, name = row.test.partition("::")
    text = (failures_table.ROOT / path).read_text(encoding="utf-8")
    assert re.search(rf"^def {name}\(", text, re.MULTILINE), row.test


def spoken() -> str:
    """Every text in the sources, that of one literal or f-string together."""
    found = []
    for path in sorted((failures_table.ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(found)


def test_what_another_test_provokes_is_still_said_so() -> None:
    texts = spoken()
    stale = {
        row.says
        for row in ELSEWHERE
        for piece in row.says.split(failures_table.GAP)
        if not row.stdout and len(piece) > 5 and piece not in texts
    }
    assert stale == set()


def test_every_exit_code_is_in_the_table_and_every_class_has_one_of_them() -> None:
    assert {row.exit_code for row in FAILURES} == {
        errors.EXIT_COULD_NOT_RUN,
        errors.EXIT_USAGE,
        errors.EXIT_BLOCKED,
        errors.EXIT_FENCE,
    }
    for _, kind in inspect.getmembers(errors, inspect.isclass):
        if issubclass(kind, errors.PgflowMigrateError):
            assert kind.exit_code in {row.exit_code for row in FAILURES}
