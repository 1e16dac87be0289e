"""The command: what it prints where, and how it exits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import psycopg
import pytest
from click.testing import CliRunner, Result

from pgflow_migrate import resources
from pgflow_migrate.cli import main
from pgflow_migrate.verify.checks import CHECKS
from pgflow_migrate.verify.run import _OPERATION

Database = psycopg.Connection[dict[str, Any]]
Run = Callable[..., Result]


@pytest.fixture
def run(database: Database, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``pgflow-migrate verify`` on the test's database, named by the environment."""
    monkeypatch.setenv("PGFLOW_DSN", database.info.dsn)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["verify", *arguments])

    return invoke


@pytest.fixture
def broken(database: Database) -> Database:
    """One violation, with a control character in the name of its subject."""
    database.execute("alter table pgflow.flows drop constraint slug_is_valid")
    database.execute("insert into pgflow.flows (flow_slug) values (%s)", ["a\x1b[31m"])
    database.execute("alter table pgflow.flows add constraint slug_is_valid check (true)")
    return database


def test_clean_exits_0(run: Run) -> None:
    result = run()
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.fullmatch(
        rf"All {len(CHECKS)} invariants hold in database \S+, dirty_runs, at \S+ \S+ UTC"
        r" \(3 flows, 2 steps, 5 tasks\)\.\n",
        result.stdout,
    )


def test_violations_exit_3(run: Run, broken: Database) -> None:
    result = run()
    assert (result.exit_code, result.stderr) == (3, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "broken  catalogue"
    assert lines[4:6] == ["broken  slug-valid", "  flow a\\x1b[31m: a\\x1b[31m"]
    assert lines[-1].startswith(f"2 of {len(CHECKS)} invariants do not hold in database ")


def test_json_has_every_check(run: Run, database: Database) -> None:
    assert json.loads(run("--format", "json").stdout)["status"] == "clean"
    database.execute("select pgmq.delete('orders', 4)")
    result = run("--format", "json")
    document = json.loads(result.stdout)
    assert result.exit_code == 3
    assert document["status"] == "violated"
    assert document["looked_at"] == {"flows": 3, "steps": 2, "tasks": 5}
    assert document["checks"] == dict.fromkeys(CHECKS, "holds") | {"live-task-message": "violated"}
    (violation,) = document["violations"]
    assert (violation["subject"], violation["samples"]) == (
        "queue orders",
        ["00000000-0000-4000-8000-000000000004/pack/0"],
    )


def test_junit_has_a_case_for_every_check(run: Run, broken: Database) -> None:
    suite = ET.fromstring(run("--format", "junit").stdout)[0]  # noqa: S314 - our own
    assert (suite.get("tests"), suite.get("failures")) == (str(len(CHECKS)), "2")
    assert [case.get("name") for case in suite.iter("testcase")] == list(CHECKS)
    assert [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None] == [
        "catalogue",
        "slug-valid",
    ]


def test_github_has_an_annotation_for_each_violation(run: Run, broken: Database) -> None:
    lines = run("--format", "github").stdout.splitlines()
    assert [line.partition("::")[2].partition("::")[0] for line in lines] == [
        "error title=catalogue",
        "error title=slug-valid",
        "notice title=pgflow-migrate verify",
    ]


@pytest.mark.parametrize("format_", ["table", "json", "junit", "github"])
def test_a_database_that_is_not_upgraded_exits_1(format_: str, database_at: Callable[[str], str]) -> None:
    dsn = database_at("core_0_16_0")
    result = CliRunner().invoke(main, ["verify", "--dsn", dsn, "--format", format_])
    assert result.exit_code == 1
    assert "error: This database is not upgraded: schema pgflow is 0.16.0.\n" in result.stderr


def test_registry_sql_and_document_name_the_same_checks() -> None:
    invariants = (resources.revision_sql("queue_identity") / "invariants.sql").read_text(encoding="utf-8")
    in_sql = set(re.findall(r"'([a-z-]+)' as \"check\"", invariants + _OPERATION.read_text(encoding="utf-8")))
    protocol_2 = (resources.revision_sql("dirty_runs") / "invariants.sql").read_text(encoding="utf-8")
    in_sql |= set(re.findall(r"'(v2-[a-z-]+)'", protocol_2))
    in_sql |= set(re.findall(r"'check', '([a-z-]+)'", _OPERATION.read_text(encoding="utf-8")))
    in_sql |= {"queue-objects"}  # the second of a union, whose columns have their names from the first
    assert in_sql == set(CHECKS) - {"version", "ledger", "checksum", "catalogue"}
    document = (resources.root() / "docs" / "verify.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z0-9-]+)` \|", document, re.MULTILINE) == list(CHECKS)
