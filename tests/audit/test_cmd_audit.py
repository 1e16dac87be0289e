"""The command: what it prints where, and how it exits."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import psycopg
import pytest
from click.testing import CliRunner, Result

from pgflow_migrate.audit import script
from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.cli import main

Database = psycopg.Connection[dict[str, Any]]
Run = Callable[..., Result]


@pytest.fixture
def run(database: Database, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``pgflow-migrate audit`` on the test's database, named by the environment."""
    monkeypatch.setenv("PGFLOW_DSN", database.info.dsn)

    def invoke(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["audit", *arguments])

    return invoke


@pytest.fixture
def blocked(database: Database) -> Database:
    """One error and one info."""
    database.execute("select pgflow.create_flow('a__b')")
    return database


def test_clean_exits_0_and_says_that_it_is_a_report_of_one_point_in_time(run: Run) -> None:
    result = run()
    assert result.exit_code == 0
    assert "Nothing stands in the way of the upgrade" in result.stdout
    assert "point-in-time report, not an authorisation" in result.stdout
    assert result.stderr == ""


def test_blocking_findings_exit_3(run: Run, blocked: Database) -> None:
    result = run()
    assert result.exit_code == 3
    assert result.stdout.splitlines()[:2] == [
        'error   slug-double-underscore: a slug contains "__"',
        "  flow a__b",
    ]
    assert result.stderr == ""


def test_warnings_exit_0(run: Run, database: Database) -> None:
    database.execute(
        "create function pgflow.prune_data_older_than(interval) returns void language sql as 'select'"
    )
    result = run()
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "warning prune-helper-customised: a pruning helper of your own is installed\n"
    )


def test_json_is_one_document_and_nothing_else(run: Run, blocked: Database) -> None:
    result = run("--format", "json")
    assert result.exit_code == 3
    document = json.loads(result.stdout)
    expected = [finding.code for finding in run_audit(blocked).findings]
    assert [finding["code"] for finding in document["findings"]] == expected
    assert result.stderr == ""


def test_junit_github_and_html_are_printed_whole(run: Run, blocked: Database) -> None:
    junit = run("--format", "junit")
    suite = ET.fromstring(junit.stdout).find("testsuite")  # noqa: S314 - our own text
    assert suite is not None
    assert suite.get("failures") == "1"
    github = run("--format", "github")
    assert github.stdout.startswith("::error title=slug-double-underscore::flow a__b. ")
    html = run("--format", "html")
    assert html.stdout.startswith("<!doctype html>\n")
    assert html.stdout.endswith("</html>\n")
    assert (junit.exit_code, github.exit_code, html.exit_code) == (3, 3, 3)


@pytest.mark.parametrize("form", ["table", "json", "junit", "github", "html"])
def test_a_file_gets_what_stdout_would_have(form: str, run: Run, blocked: Database, tmp_path: Path) -> None:
    result = run("--format", form, "--output", str(tmp_path / "report"))
    assert result.exit_code == 3
    assert result.stdout == ""
    text = (tmp_path / "report").read_text(encoding="utf-8")
    assert "slug-double-underscore" in text
    assert "\x1b" not in text


@pytest.mark.parametrize("form", ["table", "html"])
def test_an_audit_that_cannot_run_leaves_the_file_alone(run: Run, tmp_path: Path, form: str) -> None:
    kept = tmp_path / "report"
    kept.write_text("of yesterday")
    result = run("--dsn", "host=/nowhere dbname=x", "--format", form, "--output", str(kept))
    assert (result.exit_code, result.stdout) == (1, "")
    assert kept.read_text() == "of yesterday"


@pytest.mark.parametrize(
    ("form", "beginning"),
    [
        ("json", '{\n  "status": "failed",'),
        ("junit", "<?xml "),
        ("github", "::error title=pgflow-migrate audit::"),
    ],
)
def test_a_program_reads_no_report_of_yesterday(run: Run, tmp_path: Path, form: str, beginning: str) -> None:
    """But why there is none: a CI job takes the file whatever the command ended with."""
    kept = tmp_path / "report"
    kept.write_text("of yesterday")
    result = run("--dsn", "host=/nowhere dbname=x", "--format", form, "--output", str(kept))
    assert (result.exit_code, result.stdout) == (1, "")
    assert kept.read_text().startswith(beginning)
    assert "No server listens at socket /nowhere" in kept.read_text()


@pytest.mark.parametrize(
    ("form", "encoding"), [("json", "latin-1"), ("junit", "cp1252"), ("github", "ascii"), ("html", "latin-1")]
)
def test_what_programs_read_is_utf_8(
    database: Database, form: str, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("alter table pgflow.flows drop constraint slug_is_valid")
    database.execute("insert into pgflow.flows (flow_slug) values ('caf\u00e9 \u2202')")
    written = io.BytesIO()
    stdout = io.TextIOWrapper(written, encoding=encoding, write_through=True)
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", stdout)
        arguments = ["audit", "--dsn", database.info.dsn, "--format", form]
        assert main(arguments, standalone_mode=False) == 3
    text = written.getvalue().decode("utf-8")
    assert "caf\u00e9 \u2202" in text
    if form == "json":
        assert json.loads(text)["findings"][0]["flow_slug"] == "caf\u00e9 \u2202"
    elif form == "junit":
        ET.fromstring(written.getvalue())  # noqa: S314


def test_a_file_is_no_terminal(
    run: Run, blocked: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    run("--output", str(tmp_path / "report"))
    assert "\x1b" not in (tmp_path / "report").read_text(encoding="utf-8")


def test_sql_prints_the_script_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGFLOW_DSN", "host=/nowhere dbname=x")
    result = CliRunner().invoke(main, ["audit", "--sql"])
    assert result.exit_code == 0
    assert result.stdout == script.compose()


def test_a_server_that_is_not_there_exits_1_with_two_sentences(run: Run) -> None:
    result = run("--dsn", "host=/nowhere dbname=x password=hunter2", "--format", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["exit_code"] == 1
    assert result.stderr.startswith("error: ")
    assert "hunter2" not in result.output


def test_a_report_of_thousands_of_flows_stays_readable(run: Run, database: Database) -> None:
    database.execute(
        "insert into pgflow.flows (flow_slug) select 'f' || n from generate_series(1, 3000) as n;"
        "insert into pgflow.steps (flow_slug, step_slug) select flow_slug, 's' from pgflow.flows;"
    )
    result = run()
    assert result.exit_code == 3
    lines = result.stdout.splitlines()
    assert sum(line.startswith("  flow f") for line in lines) == 3000 + 10
    assert "  and 2,990 more like these, together 2,990" in lines


@pytest.mark.parametrize("form", ["json", "junit", "github", "table"])
def test_sql_with_a_format_is_a_usage_error(form: str) -> None:
    result = CliRunner().invoke(main, ["audit", "--sql", "--format", form])
    assert result.exit_code == 2
    assert "--sql prints a script, which has no --format: give one of the two." in result.stderr
    assert result.stdout == ""


def test_an_audit_that_cannot_run_is_valid_junit() -> None:
    result = CliRunner().invoke(main, ["audit", "--dsn", "host=127.0.0.1 port=1 user=x", "--format", "junit"])
    assert result.exit_code == 1
    suite = ET.fromstring(result.stdout).find("testsuite")  # noqa: S314 - our own text
    assert suite is not None
    assert suite.attrib == {
        "name": "pgflow-migrate audit",
        "tests": "1",
        "failures": "0",
        "errors": "1",
        "skipped": "0",
    }
    (case,) = suite.findall("testcase")
    (told,) = case
    assert told.tag == "error"
    assert told.get("message") == "No server listens at 127.0.0.1:1."
    assert told.text == ("No server listens at 127.0.0.1:1.\nCheck host and port, and that the server runs.")


def test_an_audit_that_cannot_run_is_one_annotation() -> None:
    result = CliRunner().invoke(
        main, ["audit", "--dsn", "host=127.0.0.1 port=1 user=x", "--format", "github"]
    )
    assert result.exit_code == 1
    assert result.stdout == (
        "::error title=pgflow-migrate audit::No server listens at 127.0.0.1:1. "
        "Check host and port, and that the server runs.\n"
    )


def test_an_upgraded_database_exits_0_and_says_so(
    database_at: Callable[[str], str],
) -> None:
    result = CliRunner().invoke(main, ["audit", "--dsn", database_at("queue_identity")])
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "info    already-upgraded: this database has queue identity"
    assert result.stdout.splitlines()[-1].endswith(
        ": this audit has nothing to look for; pgflow-migrate status says what is pending."
    )
