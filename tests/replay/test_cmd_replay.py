"""The command: exit codes, formats, and what goes where."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from click.testing import CliRunner, Result

from pgflow_migrate import resources
from pgflow_migrate.cli import main
from pgflow_migrate.servers import Server


@pytest.fixture
def fixtures(tmp_path: Path) -> Path:
    """Two scenarios of our own: one comes out as expected, the other expects too much."""
    for name in ("right", "wrong"):
        folder = tmp_path / "0.16.0" / name
        shutil.copytree(resources.fixtures() / "0.16.0" / "empty_flow", folder)
    with (tmp_path / "0.16.0" / "wrong" / "scenario.toml").open("a") as file:
        file.write('\n[[check]]\nname = "two"\nquery = "select 1"\nrows = [[2]]\n')
    return tmp_path


def run(server: Server, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["replay", "--server", server.admin_dsn, *arguments])


def test_all_as_expected_exits_0(server: Server, fixtures: Path) -> None:
    result = run(server, "--fixtures", str(fixtures), "--scenario", "right")
    assert result.exit_code == 0
    assert "0.16.0   right     as expected" in result.stdout
    assert "1 as expected." in result.stdout
    assert "[1/1] 0.16.0/right: as expected" in result.stderr


def test_a_difference_exits_3_and_json_is_all_of_stdout(server: Server, fixtures: Path) -> None:
    result = run(server, "--fixtures", str(fixtures), "--format", "json")
    assert result.exit_code == 3
    document = json.loads(result.stdout)
    assert document["exit_code"] == 3
    assert document["counts"] == {"as expected": 1, "differs": 1, "skipped": 0, "could not run": 0}
    assert document["scenarios"][1]["details"] == ["Check 'two' gave [[1]], not [[2]]."]


def test_junit_is_all_of_stdout(server: Server, fixtures: Path) -> None:
    result = run(server, "--fixtures", str(fixtures), "--format", "junit")
    assert result.exit_code == 3
    suite = Xml.fromstring(result.stdout.encode())  # noqa: S314 - our own document
    assert suite.attrib["tests"] == "2"
    assert suite.attrib["failures"] == "1"


def test_a_scenario_that_could_not_run_exits_1(server: Server, fixtures: Path) -> None:
    (fixtures / "0.16.0" / "right" / "populate.sql").write_text("nonsense")
    result = run(server, "--fixtures", str(fixtures), "--scenario", "right")
    assert result.exit_code == 1
    assert "could not run" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scenario", "nope"], "No scenario is called 'nope'."),
        (["--release", "0.1.0"], "There are no scenarios for release 0.1.0."),
        (["--baseline-sql", "."], "holds no migration 20260907082520_pgflow_*.sql"),
    ],
)
def test_what_cannot_be_run_exits_1_with_a_sentence(
    server: Server, fixtures: Path, arguments: list[str], message: str
) -> None:
    result = run(server, "--fixtures", str(fixtures), *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_an_unreachable_server_exits_1(fixtures: Path) -> None:
    arguments = ["--server", "postgresql://nobody@127.0.0.1:1/postgres", "--fixtures", str(fixtures)]
    result = CliRunner().invoke(main, ["replay", *arguments])
    assert result.exit_code == 1
    assert "Traceback" not in result.output
