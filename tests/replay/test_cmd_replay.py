"""The command: exit codes, formats, and what goes where."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as Xml

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner, Result
from psycopg import conninfo

from pgflow_migrate import resources
from pgflow_migrate.cli import main, signals
from pgflow_migrate.errors import Interrupted
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
    assert result.stdout.splitlines()[-1].startswith("1 scenario on ")
    assert "1 as expected." in result.stdout
    assert result.stderr.startswith("1 scenario on ")
    assert "[1/1] 0.16.0/right: as expected" in result.stderr


def test_a_difference_exits_3_and_json_is_all_of_stdout(server: Server, fixtures: Path) -> None:
    result = run(server, "--fixtures", str(fixtures), "--format", "json")
    assert result.exit_code == 3
    document = json.loads(result.stdout)
    assert document["exit_code"] == 3
    assert document["counts"] == {"as expected": 1, "differs": 1, "skipped": 0, "could not run": 0}
    assert document["scenarios"][1]["details"] == ["Check 'two' gave [[1]], not [[2]]."]
    assert result.stderr == ""


def test_junit_is_all_of_stdout(server: Server, fixtures: Path) -> None:
    result = run(server, "--fixtures", str(fixtures), "--format", "junit")
    assert result.exit_code == 3
    (suite,) = Xml.fromstring(result.stdout.encode())  # noqa: S314 - our own document
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
        (
            ["--scenario", "nope"],
            "error: No scenario is called 'nope'.\nKnown scenarios: right, wrong.\n",
        ),
        (
            ["--release", "9.9.9"],
            "error: There are no scenarios for release 9.9.9.\nKnown releases: 0.16.0.\n",
        ),
    ],
)
def test_an_unknown_scenario_or_release_is_a_usage_error_with_the_known_ones(
    fixtures: Path, arguments: list[str], message: str
) -> None:
    result = CliRunner().invoke(main, ["replay", "--fixtures", str(fixtures), *arguments])
    assert result.exit_code == 2
    assert result.stderr == message


def test_scenarios_and_releases_may_be_named_several_times(server: Server, fixtures: Path) -> None:
    names = ("--scenario", "wr*", "--scenario", "right", "--scenario", "nope")
    result = run(server, "--fixtures", str(fixtures), *names)
    assert (result.exit_code, result.stderr.splitlines()[0]) == (2, "error: No scenario is called 'nope'.")
    result = run(server, "--fixtures", str(fixtures), *names[:4], "--format", "json")
    assert [one["name"] for one in json.loads(result.stdout)["scenarios"]] == ["right", "wrong"]
    result = run(server, "--fixtures", str(fixtures), "--release", "9.9", "--release", "0.16.0")
    assert (result.exit_code, result.stderr.splitlines()[0]) == (
        2,
        "error: There are no scenarios for release 9.9.",
    )


@pytest.mark.parametrize(
    ("interrupt", "who"), [(KeyboardInterrupt(), "Ctrl-C"), (signals.Terminated("SIGTERM"), "SIGTERM")]
)
@pytest.mark.parametrize("command", ["replay", "demo", "replay --matrix", "replay --from"])
def test_an_interrupt_says_what_became_of_the_databases_whatever_it_interrupted(
    command: str, interrupt: KeyboardInterrupt, who: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object) -> None:
        raise Interrupted(f"{who} ended the upgrade.", "The database is unchanged.") from interrupt

    for module in ("pgflow_migrate.servers", "pgflow_migrate.replay.matrix"):
        monkeypatch.setattr(f"{module}.open_server", interrupted)
    arguments = command.split()
    if "--from" in arguments:
        monkeypatch.setattr("pgflow_migrate.cli.cmd_replay._file_player", lambda *_: lambda meter: None)
        arguments.append(str(tmp_path / "file"))
        (tmp_path / "file").touch()
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    error, remedy = result.stderr.splitlines()[-2:]
    assert (error, remedy) == (
        f"error: Ended by {who}.",
        "The databases that were made for it are gone.",
    )
    told = json.loads(CliRunner().invoke(main, [*arguments, "--format", "json"]).stdout)["error"]
    assert told["message"] == f"Ended by {who}."
    if command != "demo":
        junit = CliRunner().invoke(main, [*arguments, "--format", "junit"]).stdout
        case = Xml.fromstring(junit.encode()).find(".//error")  # noqa: S314 - our own document
        assert case is not None
        assert case.get("message") == f"Ended by {who}."


def test_a_baseline_that_does_not_reach_the_release_exits_1(server: Server, fixtures: Path) -> None:
    result = run(server, "--fixtures", str(fixtures), "--baseline-sql", ".")
    assert result.exit_code == 1
    assert "holds no migration 20260907082520_pgflow_*.sql" in result.stderr
    assert "Traceback" not in result.output


def test_a_server_that_cannot_be_used_is_told_as_by_the_audit(server: Server, fixtures: Path) -> None:
    missing = conninfo.make_conninfo(server.admin_dsn, dbname="missing")
    for dsn in ("host=127.0.0.1 port=1 user=nobody", missing):
        replay = CliRunner().invoke(main, ["replay", "--server", dsn, "--fixtures", str(fixtures)])
        audit = CliRunner().invoke(main, ["audit", "--dsn", dsn])
        assert (replay.exit_code, audit.exit_code) == (1, 1)
        assert replay.stderr == audit.stderr
    assert replay.stderr.startswith('error: There is no database "missing" at socket ')


def test_what_a_server_refuses_is_told_by_each_server(server: Server, fixtures: Path) -> None:
    dsn = conninfo.make_conninfo(server.admin_dsn, options="-c default_transaction_read_only=on")
    options = ["--fixtures", str(fixtures), "--scenario", "right", "--format", "json"]
    told = "could not go on: cannot execute CREATE DATABASE in a read-only transaction (SQLSTATE 25006)."
    one = CliRunner().invoke(main, ["replay", "--server", dsn, *options])
    assert one.exit_code == 1
    assert one.stderr.startswith("error: The replay on ")
    assert one.stderr.splitlines()[0].endswith(told)
    several = ["--matrix", "--pgmq", "sql", "--on", dsn, "--on", server.admin_dsn]
    grid = CliRunner().invoke(main, ["replay", *several, *options])
    assert grid.exit_code == 1
    first, second = json.loads(grid.stdout)["cells"]
    assert (first["status"], second["status"]) == ("could not run", "ran")
    assert first["reason"].endswith(told)
    assert second["report"]["counts"]["as expected"] == 1


def test_a_replay_that_cannot_run_is_valid_junit(fixtures: Path) -> None:
    arguments = ["--server", "host=127.0.0.1 port=1 user=nobody", "--fixtures", str(fixtures)]
    result = CliRunner().invoke(main, ["replay", *arguments, "--format", "junit"])
    assert result.exit_code == 1
    suite = Xml.fromstring(result.stdout.encode()).find("testsuite")  # noqa: S314 - our own document
    assert suite is not None
    assert (suite.get("name"), suite.get("tests"), suite.get("errors")) == ("pgflow-migrate replay", "1", "1")
    (case,) = suite.findall("testcase")
    (told,) = case
    assert (told.tag, told.get("message")) == ("error", "No server listens at 127.0.0.1:1.")


@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("replay --server emb", ["embedded:16", "embedded:17", "embedded:18"]),
        ("replay --release 0.15", ["0.15.0", "0.15.1"]),
        ("replay --release 0.15.0 --scenario ", ["hardening", "running"]),
        ("replay --release 0.15.0 --release 0.15.1 --scenario empty --scenario r", ["running"]),
        (
            "replay --scenario prune",
            ["prune_helper_customised", "prune_helper_original", "prune_helper_stock"],
        ),
    ],
)
def test_the_shell_completes_servers_releases_and_scenarios(words: str, completions: list[str]) -> None:
    *before, incomplete = words.split(" ")
    completer = ShellComplete(main, {}, "pgflow-migrate", "_PGFLOW_MIGRATE_COMPLETE")
    assert [item.value for item in completer.get_completions(before, incomplete)] == completions
