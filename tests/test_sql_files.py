"""Rules that every SQL file of a revision follows, checked on its parse tree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pglast
import pytest

from pgflow_migrate import resources

# The Work Center's chain speaks SQLite; tests/work_center/test_sql_files.py looks at it.
SQL = resources.root() / "alembic" / "sql"
SQL_FILES = sorted(p for p in SQL.rglob("*.sql") if not p.relative_to(SQL).parts[0].startswith("wc_"))
TRANSACTION_WORDS = ("TransactionStmt",)
# pglast's PL/pgSQL parser knows no user-defined types; a row of one of these tables is a record to it.
ROW_TYPES = re.compile(
    r"\bpgflow\.(flows|steps|runs|step_states|step_tasks|step_task_record|run_work|task_claims)\b"
)
PINNED_FROM = ("queue_identity", "dirty_runs")


def _name(path: Path) -> str:
    return path.relative_to(SQL).as_posix()


def _statements(path: Path) -> list[dict[str, Any]]:
    tree = json.loads(pglast.parser.parse_sql_json(path.read_text(encoding="utf-8")))
    return [statement["stmt"] for statement in tree["stmts"]]


def _options(statement: dict[str, Any]) -> dict[str, list[Any]]:
    options: dict[str, list[Any]] = {}
    for option in statement.get("options", []):
        options.setdefault(option["DefElem"]["defname"], []).append(option["DefElem"]["arg"])
    return options


def test_there_are_sql_files() -> None:
    assert len(SQL_FILES) > 60


@pytest.mark.parametrize("path", SQL_FILES, ids=_name)
def test_file_parses_and_leaves_the_transaction_to_the_caller(path: Path) -> None:
    statements = _statements(path)
    assert statements
    assert [s for s in statements if any(word in s for word in TRANSACTION_WORDS)] == []


@pytest.mark.parametrize("path", SQL_FILES, ids=_name)
def test_file_opens_with_a_comment_that_says_what_it_is(path: Path) -> None:
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert re.match(r"-- \S+", first), first


@pytest.mark.parametrize("path", SQL_FILES, ids=_name)
def test_lines_are_short_enough_to_read(path: Path) -> None:
    long = [n for n, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if len(line) > 120]
    assert long == []


@pytest.mark.parametrize(
    "path",
    [p for p in SQL_FILES if p.parent.name == "functions" and _name(p).split("/")[0] in PINNED_FROM],
    ids=_name,
)
def test_function_pins_its_search_path_and_is_documented(path: Path) -> None:
    statements = _statements(path)
    functions = [s["CreateFunctionStmt"] for s in statements if "CreateFunctionStmt" in s]
    assert [f["funcname"][-1]["String"]["sval"] for f in functions] == [path.stem]
    for function in functions:
        settings = [a["VariableSetStmt"]["name"] for a in _options(function).get("set", [])]
        assert settings.count("search_path") == 1
    assert any("CommentStmt" in s for s in statements)


@pytest.mark.parametrize(
    "path", [p for p in SQL_FILES if "plpgsql" in p.read_text(encoding="utf-8")], ids=_name
)
def test_plpgsql_bodies_parse(path: Path) -> None:
    functions = [s["CreateFunctionStmt"] for s in _statements(path) if "CreateFunctionStmt" in s]
    languages = [_options(f)["language"][0]["String"]["sval"] for f in functions]
    text = ROW_TYPES.sub("record", path.read_text(encoding="utf-8"))
    parsed = pglast.parse_plpgsql(text) if "plpgsql" in languages else []
    assert len(parsed) == languages.count("plpgsql")
