"""The group: help, laziness, completion, and how errors are shown."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import inspect
import json
import platform
import re
import shlex
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import psycopg
import pytest
from click.testing import CliRunner, Result
from tests.as_nobody import as_nobody

from pgflow_migrate import __version__
from pgflow_migrate.cli import COMMANDS, Toolkit, failures, main
from pgflow_migrate.errors import (
    EXIT_BLOCKED,
    EXIT_COULD_NOT_RUN,
    EXIT_FENCE,
    EXIT_USAGE,
    BlockedError,
    Blocker,
    FenceError,
    Interrupted,
    PgflowMigrateError,
)
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.work_center.chain import STEPS

Invoke = Callable[..., Result]
Run = Callable[..., "subprocess.CompletedProcess[str]"]

HEAVY = {"sqlalchemy", "alembic", "psycopg", "rich", "jinja2", "pgflow_migrate.database"}


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from pgflow_migrate.cli import main;"
        " result = CliRunner().invoke(main, ['--help']); assert result.exit_code == 0, result.output;"
        " print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert "click" in loaded
    assert not loaded & HEAVY
    assert not {name for name in loaded if name.startswith("pgflow_migrate.cli.cmd_")}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_help_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys; from click.testing import CliRunner; from pgflow_migrate.cli import main;"
        f" result = CliRunner().invoke(main, [{command!r}, '--help']); assert result.exit_code == 0,"
        " result.output; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & HEAVY


def test_help_tells_commands_exit_codes_connection_and_completion(invoke: Invoke) -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    column = max(map(len, COMMANDS))
    for command, (_, line) in COMMANDS.items():
        assert f"  {command:<{column}}  {line}"[:70] in result.stdout
    for code in ("  0  done", "  1  could not run", "  2  usage", "  3  blocked", "  4  the locks"):
        assert code in result.stdout
    assert "--dsn, else PGFLOW_DSN, else DATABASE_URL, else libpq's variables" in result.stdout
    assert 'eval "$(_PGFLOW_MIGRATE_COMPLETE=bash_source pgflow-migrate)"' in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_says_what_the_command_itself_says(name: str) -> None:
    assert isinstance(main, Toolkit)
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.name == name
    assert command.help
    assert " ".join(command.help.split("\n\n")[0].split()) == COMMANDS[name][1]


def leaves(command: click.Command, name: str) -> list[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        return [leaf for below, one in command.commands.items() for leaf in leaves(one, f"{name} {below}")]
    return [(name, command)]


@pytest.mark.parametrize("name", COMMANDS)
def test_each_commands_help_has_examples_and_says_how_it_exits(name: str) -> None:
    assert isinstance(main, Toolkit)
    command = main.get_command(click.Context(main), name)
    assert command is not None
    for path, leaf in leaves(command, name):
        assert leaf.help
        block = inspect.cleandoc(leaf.help).partition("\b\n")[2]
        examples = [line for line in block.splitlines() if line.startswith(f"pgflow-migrate {path}")]
        assert examples, path
        with click.Context(leaf, info_name=path) as context:
            for line in examples:
                words = shlex.split(line.partition("|")[0].partition("2>")[0].partition(" > ")[0])
                options = words[1 + len(path.split()) :]
                leaf.make_context(path, options, parent=context, resilient_parsing=True).close()
        if path not in ("dirty-runs contract", "dirty-runs inventory"):  # which say it of --dsn
            assert re.search(r"\b[Ee]xits? |\(exit 1\)", leaf.help), path


def test_h_is_help_and_so_are_no_arguments(invoke: Invoke) -> None:
    assert invoke("-h").stdout == invoke("--help").stdout
    assert invoke().output == invoke("--help").output


def test_the_version_has_all_parts(invoke: Invoke) -> None:
    first, *parts = invoke("--version").stdout.splitlines()
    assert first == f"pgflow-migrate, version {__version__}"
    assert importlib.metadata.version("pgflow-migrate") == __version__
    versions = {line[:12].strip(): line[12:].strip() for line in parts}
    assert versions["revisions"] == f"up to {HEAD}; of the Work Center up to {STEPS[-1].revision}"
    assert versions["Python"].startswith(f"{platform.python_version()} (")
    for name in ("alembic", "SQLAlchemy", "click", "rich"):
        assert versions[name] == importlib.metadata.version(name)
    libpq = psycopg.pq.version()
    assert (
        versions["psycopg"]
        == f"{psycopg.__version__} ({psycopg.pq.__impl__}), libpq {libpq // 10000}.{libpq % 10000}"
    )
    assert versions["SQLite"] == sqlite3.sqlite_version
    assert re.match(r"PostgreSQL 1\d|no PostgreSQL installed", versions["embedded"])


def test_an_unknown_command_is_a_usage_error(invoke: Invoke) -> None:
    result = invoke("upgarde")
    assert (result.exit_code, result.stdout) == (EXIT_USAGE, "")
    assert "No such command 'upgarde'" in result.stderr


def test_downgrade_is_no_command_but_an_answer(invoke: Invoke) -> None:
    result = invoke("downgrade", "--dsn", "host=db")
    assert (result.exit_code, result.stdout) == (EXIT_USAGE, "")
    told = " ".join(result.stderr.split())
    assert "Error: No such command 'downgrade'. From dirty_runs back to queue identity: alembic" in told
    assert "downgrade queue_identity, which pgflow-migrate docs upgrade shows in full" in told


@pytest.mark.parametrize(
    ("arguments", "name", "value", "said"),
    [
        ("audit", "PGFLOW_MIGRATE_AUDIT_FORMAT", "yaml", "(for '--format'): 'yaml' is not one of"),
        ("upgrade", "PGFLOW_MIGRATE_UPGRADE_MAX_WAIT", "7", "(for '--max-wait'): '7' is no duration"),
        ("status", "PGFLOW_MIGRATE_LOG_FORMAT", "xml", "(for '--log-format'): 'xml' is not one of"),
        (
            "dirty-runs status",
            "PGFLOW_MIGRATE_DIRTY_RUNS_STATUS_LIMIT",
            "0",
            "(for '--limit'): 0 is not in the range",
        ),
    ],
)
def test_a_wrong_value_of_the_environment_names_its_variable(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, arguments: str, name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    result = invoke(*arguments.split())
    assert (result.exit_code, result.stdout) == (EXIT_USAGE, "")
    assert f"Error: Invalid value for {name} {said}" in result.stderr
    # On the command line the option is what is wrong.
    option = re.search(r"--[\w-]+", said)
    assert option is not None
    top = [option[0], value] if name.endswith("LOG_FORMAT") else []
    result = invoke(*top, *arguments.split(), *([] if top else [option[0], value]))
    assert f"Error: Invalid value for '{option[0]}': " in result.stderr


def test_a_file_that_cannot_be_opened_is_one_sentence_of_ours(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    arguments = ("audit", "--dsn", database_at("core_0_16_0"), "--output", "/nonexistent/x")
    result = invoke(*arguments)
    assert (result.exit_code, result.stdout) == (EXIT_COULD_NOT_RUN, "")
    assert result.stderr == (
        "error: /nonexistent/x cannot be opened: No such file or directory.\n"
        "Name another file, in a folder that is there and that you may write to.\n"
    )
    document = json.loads(invoke(*arguments, "--format", "json").stdout)
    assert document["error"]["message"] == "/nonexistent/x cannot be opened: No such file or directory."


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nowhere/report", "No such file or directory"),
        ("folder", "Is a directory"),
        ("sealed/report", "Permission denied"),
        ("sealed/old", "Permission denied"),
        ("closed/report", "Permission denied"),
        ("x" * 300, "File name too long"),
    ],
)
def test_a_file_is_looked_at_before_the_audit_and_left_alone(invoke: Invoke, name: str, reason: str) -> None:
    """The audit may take long, and what cannot be connected to would be told first."""
    with tempfile.TemporaryDirectory() as here:  # pytest's own are closed to others
        top = Path(here)
        top.chmod(0o755)
        for folder in ("folder", "sealed"):
            (top / folder).mkdir()
        (top / "sealed/old").write_text("a report")
        (top / "sealed/old").chmod(0o444)
        (top / "sealed").chmod(0o555)
        (top / "closed").mkdir(mode=0o000)
        with as_nobody():
            result = invoke("audit", "--dsn", "host=127.0.0.1 port=1", "--output", str(top / name))
        assert result.exit_code == EXIT_COULD_NOT_RUN
        assert result.stderr.splitlines()[0] == f"error: {top / name} cannot be opened: {reason}."
        assert (top / "sealed/old").read_text() == "a report"
        for folder in ("sealed", "closed"):
            (top / folder).chmod(0o755)
        assert sorted(path.name for path in top.rglob("*")) == ["closed", "folder", "old", "sealed"]


def test_an_older_report_stays_when_there_is_no_new_one(invoke: Invoke, tmp_path: Path) -> None:
    old = tmp_path / "report"
    old.write_text("a report")
    result = invoke("audit", "--dsn", "host=127.0.0.1 port=1", "--output", str(old))
    assert (result.exit_code, result.stderr.splitlines()[0]) == (
        EXIT_COULD_NOT_RUN,
        "error: No server listens at 127.0.0.1:1.",
    )
    assert old.read_text() == "a report"


def test_click_tells_nothing_but_usage_errors_in_its_own_words() -> None:
    """Those end with 2; what ends with 1 is told as everything else is."""
    kinds = {kind for kind in vars(click.exceptions).values() if isinstance(kind, type)}
    own = {kind for kind in kinds if issubclass(kind, click.ClickException) and kind.exit_code == 1}
    assert own == {click.ClickException, click.FileError}
    for module, _ in COMMANDS.values():
        spec = importlib.util.find_spec(f"pgflow_migrate.cli.{module}")
        assert spec is not None
        assert spec.loader is not None
        assert "ClickException(" not in spec.loader.get_source(spec.name)  # type: ignore[attr-defined]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed_and_complete_commands(run: Run, shell: str) -> None:
    script = run(_PGFLOW_MIGRATE_COMPLETE=f"{shell}_source")
    assert script.returncode == 0, script.stderr
    assert f"_PGFLOW_MIGRATE_COMPLETE={shell}_complete" in script.stdout
    if shell == "bash":
        words = run(_PGFLOW_MIGRATE_COMPLETE="bash_complete", COMP_WORDS="pgflow-migrate up", COMP_CWORD="1")
        assert words.stdout == "plain,upgrade\n"


ERRORS: dict[str, BaseException] = {
    "could not run": PgflowMigrateError("It is broken.", "Mend it.", ("one", "two")),
    "blocked": BlockedError("It is refused.", "Look."),
    "fence": FenceError(
        "No locks.",
        "Repeat.",
        (Blocker(7, "app", "worker", "idle in transaction", 9.0, 3.0, "select 1", ("pgflow.runs",)),),
    ),
    "interrupted": Interrupted("Ended.", "The database is unchanged."),
    "ctrl-c": KeyboardInterrupt(),
    "crash": ValueError("of this\nkind"),
}


@pytest.fixture
def raising(runner: CliRunner) -> Callable[..., Result]:
    """A command of the group that raises; returns what is seen of it."""
    from pgflow_migrate.cli.options import format_option

    def invoke(error: BaseException, *options: str, debug: bool = False) -> Result:
        class Failing(Toolkit):
            def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
                return fail

        @click.group(cls=Failing)
        @click.option("--debug", is_flag=True)
        def group(debug: bool) -> None:
            """A group with this one command."""

        @click.command()
        @format_option("table", "json")
        def fail(format_: str) -> None:
            raise error

        return runner.invoke(group, [*(["--debug"] if debug else []), "fail", *options])

    return invoke


@pytest.mark.parametrize(
    ("error", "exit_code", "stderr"),
    [
        ("could not run", EXIT_COULD_NOT_RUN, "error: It is broken.\n  one\n  two\nMend it.\n"),
        ("blocked", EXIT_BLOCKED, "error: It is refused.\nLook.\n"),
        (
            "fence",
            EXIT_FENCE,
            'error: No locks.\n  pid 7 (user app, "worker", idle in transaction,'
            " in its transaction for 9 s, last statement 3 s ago: select 1)"
            " holds pgflow.runs\nRepeat.\n",
        ),
        ("interrupted", EXIT_COULD_NOT_RUN, "error: Ended.\nThe database is unchanged.\n"),
        ("ctrl-c", EXIT_COULD_NOT_RUN, "error: Ended by Ctrl-C.\n"),
        (
            "crash",
            EXIT_COULD_NOT_RUN,
            "error: Unexpected ValueError: of this kind\nRun pgflow-migrate --debug … for the traceback.\n",
        ),
    ],
)
def test_an_error_is_a_sentence_a_remedy_and_an_exit_code(
    raising: Callable[..., Result], error: str, exit_code: int, stderr: str
) -> None:
    result = raising(ERRORS[error])
    assert (result.exit_code, result.stdout, result.stderr) == (exit_code, "", stderr)


@pytest.mark.parametrize(
    ("error", "status", "exit_code"),
    [
        ("could not run", "failed", EXIT_COULD_NOT_RUN),
        ("blocked", "blocked", EXIT_BLOCKED),
        ("fence", "fence", EXIT_FENCE),
        ("interrupted", "failed", EXIT_COULD_NOT_RUN),
        ("crash", "failed", EXIT_COULD_NOT_RUN),
    ],
)
def test_an_error_is_one_json_document_where_json_was_asked_for(
    raising: Callable[..., Result], error: str, status: str, exit_code: int
) -> None:
    result = raising(ERRORS[error], "--format", "json")
    document = json.loads(result.stdout)
    assert (document["status"], document["exit_code"]) == (status, exit_code)
    assert result.exit_code == exit_code
    assert set(document["error"]) == {"message", "remedy", "details"}
    assert document.get("findings") == ([] if error == "blocked" else None)
    assert [blocker["pid"] for blocker in document.get("blockers", ())] == ([7] if error == "fence" else [])
    assert result.stderr.startswith("error: ")


def test_only_debug_shows_a_traceback(raising: Callable[..., Result]) -> None:
    assert "Traceback" not in raising(ERRORS["crash"]).stderr
    result = raising(ERRORS["crash"], debug=True)
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert "ValueError: of this\nkind\nerror: Unexpected ValueError: of this kind\n" in result.stderr
    assert result.stdout == ""


def test_errors_are_shown_in_one_place_only() -> None:
    """No command prints an error by itself."""
    for module, _ in COMMANDS.values():
        spec = importlib.util.find_spec(f"pgflow_migrate.cli.{module}")
        assert spec is not None
        assert spec.loader is not None
        source = spec.loader.get_source(spec.name)  # type: ignore[attr-defined]
        assert "sys.exit" not in source
        assert '"error:' not in source
    assert callable(failures.show)


def test_colour_is_for_terminals_and_not_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    from pgflow_migrate.cli import output

    assert output.colour() is None  # click: on a terminal only
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.colour() is False
