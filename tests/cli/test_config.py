"""Defaults from a file and from the environment."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import Result

from pgflow_migrate.cli import COMMANDS, config, main
from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, EXIT_OK, EXIT_USAGE

Invoke = Callable[..., Result]

NOWHERE = "host=/nowhere/at/all port={}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, two below the root of a repository."""
    (tmp_path / ".git").mkdir()
    working = tmp_path / "app" / "db"
    working.mkdir(parents=True)
    monkeypatch.chdir(working)
    return working


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def port(result: Result) -> str:
    """The port of the connection string that was used; nobody listens there."""
    assert result.exit_code == EXIT_COULD_NOT_RUN
    *_, error, remedy = result.stderr.splitlines()
    assert error.startswith("error: No server listens at socket /nowhere/at/all (port "), error
    assert remedy == "Check host and port, and that the server runs."
    return error.rpartition("port ")[2].rstrip(").")


def test_a_connection_from_a_file_is_told_unless_a_program_reads(folder: Path, invoke: Invoke) -> None:
    file = write(folder.parent / config.OWN, f'dsn = "{NOWHERE.format(1)}"')
    told = f"The connection is that of {file}.\n"
    for command in (("status",), ("dirty-runs", "status"), ("audit", "--format", "github")):
        assert invoke(*command).stderr.startswith(f"{told}error: ")
    assert told not in invoke("status", "--format", "json").stderr
    assert told not in invoke("status", "--dsn", NOWHERE.format(2)).stderr
    event = json.loads(invoke("--log-format", "json", "status").stderr.splitlines()[0])
    assert (event["level"], event["event"]) == ("info", told.rstrip())


def test_the_command_line_wins_then_the_environment_then_the_file(
    folder: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder / config.OWN, f'dsn = "{NOWHERE.format(1)}"')
    assert port(invoke("status")) == "1"
    write(folder / config.OWN, f'dsn = "{NOWHERE.format(1)}"\nstatus.dsn = "{NOWHERE.format(2)}"')
    assert (port(invoke("status")), port(invoke("verify"))) == ("2", "1")
    monkeypatch.setenv("DATABASE_URL", NOWHERE.format(3))
    assert port(invoke("status")) == "3"
    monkeypatch.setenv("PGFLOW_DSN", NOWHERE.format(4))
    assert port(invoke("status")) == "4"
    monkeypatch.setenv("PGFLOW_MIGRATE_STATUS_DSN", NOWHERE.format(5))
    assert (port(invoke("status")), port(invoke("verify"))) == ("5", "4")
    assert port(invoke("status", "--dsn", NOWHERE.format(6))) == "6"


def test_a_command_below_a_command_has_its_table_and_the_common_connection(
    folder: Path, invoke: Invoke
) -> None:
    write(folder / config.OWN, f'dsn = "{NOWHERE.format(1)}"\n[dirty-runs.reconcile]\nformat = "json"')
    assert port(invoke("dirty-runs", "status")) == "1"
    assert '"status": "failed"' in invoke("dirty-runs", "reconcile", "--next").stdout


def test_a_common_connection_connects_no_command_that_needs_none(folder: Path, invoke: Invoke) -> None:
    write(folder / config.OWN, f'dsn = "{NOWHERE.format(1)}"\n[audit]\nformat = "json"')
    for command in (
        ("dirty-runs", "inventory"),
        ("upgrade", "--sql"),
        ("audit", "--sql"),
        ("prune-helper", "--sql"),
    ):
        result = invoke(*command)
        assert result.exit_code == EXIT_OK, result.stderr


def test_the_nearest_file_up_to_the_root_of_the_repository_counts(folder: Path, invoke: Invoke) -> None:
    above, root = folder.parent, folder.parents[1]
    write(root.parent / config.OWN, "this is = not = read")
    assert config.find(folder) is None
    write(root / config.SHARED, '[tool.pgflow-migrate.status]\nformat = "json"')
    found = config.find(folder)
    assert found is not None
    assert found.path == root / config.SHARED
    assert found.table == {"status": {"format": "json"}}
    write(above / config.SHARED, "[tool.other]\n")  # not about us
    assert config.find(folder) == found
    near = write(above / config.OWN, "")
    assert config.find(folder) == config.Config(near, {})
    (root.parent / config.OWN).unlink()


def test_outside_a_repository_only_the_working_folder_counts(tmp_path: Path) -> None:
    below = tmp_path / "below"
    below.mkdir()
    write(tmp_path / config.OWN, "")
    assert config.find(below) is None
    assert config.find(tmp_path) == config.Config(tmp_path / config.OWN, {})


def test_a_named_file_is_read_and_no_other(folder: Path, invoke: Invoke) -> None:
    write(folder / config.OWN, "wrong = 1")
    other = write(folder / "other.toml", f'dsn = "{NOWHERE.format(7)}"')
    assert port(invoke("--config", str(other), "status")) == "7"


def test_paths_in_a_file_begin_at_the_file(folder: Path, invoke: Invoke) -> None:
    write(folder.parent / config.OWN, '[replay]\nfixtures = "scenarios"')
    result = invoke("replay")
    assert (result.exit_code, result.stdout) == (EXIT_COULD_NOT_RUN, "")
    assert str(folder.parent / "scenarios") in result.stderr
    (folder.parent / "scenarios").mkdir()
    assert "Directory" not in invoke("replay").stderr


WRONG = {
    "[status]\nfromat = 'json'": (
        'there is no key "status.fromat".',
        'Did you mean "status.format"?',
    ),
    "[upgrade]\nmax_wait = '5s'": ('there is no key "upgrade.max_wait".', 'Did you mean "upgrade.max-wait"?'),
    "[upgarde]": ('there is no key "upgarde".', 'Did you mean "upgrade"?'),
    "status = 1": ("status is a command, and so has to be a table.", "Write [status]."),
    "[dirty-runs.status]\nqqq = 1": (
        'there is no key "dirty-runs.status.qqq".',
        "pgflow-migrate dirty-runs status --help has the names.",
    ),
    "[upgrade]\nallow-live-workers = true": (
        "--allow-live-workers is for one call, and upgrade.allow-live-workers not for a file.",
        "Take it out, and give --allow-live-workers on the command line.",
    ),
    "[status]\nwatch = 5": (
        "--watch is for one call, and status.watch not for a file.",
        "Take it out, and give --watch on the command line.",
    ),
    "[status]\nformat = ['json']": ("status.format is neither text nor a number.", "Write it in quotes."),
    "[status]\nformat = 'jsn'": (
        "status.format cannot be used: 'jsn' is not one of 'table', 'json'.",
        "Mend it.",
    ),
    "log-format = 'xml'": ("log-format is 'xml'.", "Write one of text, json."),
    "dsn = 'postgresql://me:secret@db/app'": (
        "dsn holds a password, which is not for a file that others read.",
        "Take it out: use service=NAME and ~/.pg_service.conf, ~/.pgpass, or PGFLOW_DSN.",
    ),
    "[audit]\ndsn = 'host=db password=secret'": (
        "audit.dsn holds a password, which is not for a file that others read.",
        "Take it out: use service=NAME and ~/.pg_service.conf, ~/.pgpass, or PGFLOW_DSN.",
    ),
    "[replay]\nserver = 'postgresql://me:secret@db/app'": (
        "replay.server holds a password, which is not for a file that others read.",
        "Take it out: use service=NAME and ~/.pg_service.conf, ~/.pgpass, or PGFLOW_DSN.",
    ),
    "dsn = 'hots=db'": (
        'dsn: The connection string cannot be read: it has a parameter "hots" that libpq does not know.',
        'Did you mean "host"?',
    ),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_in_a_file_is_said_with_file_and_key(folder: Path, invoke: Invoke, text: str) -> None:
    file = write(folder / config.OWN, text)
    result = invoke("status")
    assert (result.exit_code, result.stdout) == (EXIT_COULD_NOT_RUN, "")
    message, remedy = WRONG[text]
    assert result.stderr == f"error: {file}: {message}\n{remedy}\n"
    assert "secret" not in result.stderr
    assert invoke("status", "--help").exit_code == EXIT_OK  # help does without
    assert invoke("docs", "configuration").exit_code == EXIT_OK  # and so does what tells how to mend it


def test_a_server_in_the_environment_or_a_file_may_have_blanks(
    folder: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("replay", "--scenario", "empty_flow")
    write(folder / config.OWN, f'replay.server = "{NOWHERE.format(1)}"')
    assert port(invoke(*options)) == "1"
    monkeypatch.setenv("PGFLOW_MIGRATE_REPLAY_SERVER", NOWHERE.format(2))
    assert port(invoke(*options)) == "2"


@pytest.mark.parametrize(
    ("text", "missing"),
    [("'nope*'", "nope*"), ("['empty*', 'none']", "none"), ("[['x']]", None), ("[true]", None)],
)
def test_an_option_that_may_be_repeated_takes_a_list(
    folder: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, text: str, missing: str | None
) -> None:
    file = write(folder / config.OWN, f"[replay]\nscenario = {text}")
    result = invoke("replay")
    told = result.stderr.splitlines()[0]
    if missing is None:
        assert told == f"error: {file}: replay.scenario is neither text nor a number."
        return
    assert (result.exit_code, told) == (EXIT_USAGE, f"error: No scenario is called '{missing}'.")
    monkeypatch.setenv("PGFLOW_MIGRATE_REPLAY_SCENARIO", "empty* neither")
    assert "No scenario is called 'neither'." in invoke("replay").stderr


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.toml", None, "cannot be read: No such file or directory."),
        ("latin.toml", b"x = '\xe9'", "cannot be read: it is not UTF-8."),
        ("broken.toml", b"x =", "is not TOML: Invalid value (at end of document)."),
        (config.SHARED, b"[project]", "has no table [tool.pgflow-migrate]."),
        (config.SHARED, b"tool.pgflow-migrate = 1", "is not a table."),
    ],
)
def test_a_named_file_that_cannot_be_used_is_said(
    folder: Path, invoke: Invoke, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (folder / name).write_bytes(content)
    result = invoke("--config", name, "status")
    assert result.exit_code == EXIT_COULD_NOT_RUN
    first, remedy = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert name in first
    assert first.endswith(message)
    assert remedy


def test_a_broken_pyproject_of_somebody_else_is_passed_over(folder: Path) -> None:
    (folder / config.SHARED).write_bytes(b"= \xff")
    assert config.find(folder) is None


def commands(command: click.Command, name: str) -> dict[str, click.Command]:
    found = {name: command}
    if isinstance(command, click.Group):
        for below, one in command.commands.items():
            found |= commands(one, f"{name} {below}")
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_variable_named_after_command_and_option(name: str) -> None:
    assert isinstance(main, click.Group)
    top = main.get_command(click.Context(main), name)
    assert top is not None
    for path, command in commands(top, name).items():
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                option = max(parameter.opts, key=len)
                expected = f"PGFLOW_MIGRATE {path} {option.lstrip('-')}".upper().replace(" ", "_")
                assert expected.replace("-", "_") in (parameter.envvar or ())


def test_the_environment_sets_flags_and_values(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGFLOW_MIGRATE_UPGRADE_SQL", "1")
    monkeypatch.setenv("PGFLOW_MIGRATE_UPGRADE_FROM", "queue_identity")
    monkeypatch.setenv("PGFLOW_MIGRATE_UPGRADE_MAX_WAIT", "7min")
    result = invoke("upgrade")
    assert result.exit_code == EXIT_OK, result.stderr
    assert "'420000ms'" in result.stdout
    monkeypatch.setenv("PGFLOW_MIGRATE_UPGRADE_MAX_WAIT", "7")
    result = invoke("upgrade")
    assert (result.exit_code, result.stdout) == (EXIT_USAGE, "")
    assert "'7' is no duration" in result.stderr


def test_the_documented_file_is_accepted_in_both_forms(folder: Path, invoke: Invoke) -> None:
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (folder / "scenarios").mkdir()
    write(folder / config.OWN, block)
    assert '"event": "There are no scenarios in ' in invoke("replay").stderr
    below = re.sub(r"^\[", "[tool.pgflow-migrate.", block, flags=re.MULTILINE)
    shared = write(folder / config.SHARED, f"[tool.pgflow-migrate]\n{below}")
    assert config.read(shared).table == config.read(folder / config.OWN).table


def test_the_documented_variables_are_the_options_own() -> None:
    text = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(.*?)--(.*?)` \| `(PGFLOW_MIGRATE_\w+)` \|", text, re.MULTILINE)
    assert len(rows) == 5
    for command, option, variable in rows:
        name = "_".join(["PGFLOW_MIGRATE", *command.split(), option])
        assert variable == name.upper().replace("-", "_")
