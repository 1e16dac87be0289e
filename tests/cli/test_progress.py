"""What long work shows meanwhile: a bar on a terminal, nothing where a program reads the result."""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from click.testing import Result
from rich.console import Console

from pgflow_migrate.cli import output, progress
from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, EXIT_OK
from pgflow_migrate.upgrade import estimate
from pgflow_migrate.upgrade.progress import FileDone, FileStarted, Note, RevisionStarted

Invoke = Callable[..., Result]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is written to stderr, as if that were a terminal."""
    written = io.StringIO()
    console = Console(file=written, force_terminal=True, highlight=False, no_color=True, width=100)
    monkeypatch.setattr(output, "console", lambda *, stderr: console)
    return written


def unasked() -> float | None:
    raise AssertionError("nobody reads an estimate here")


def test_the_bar_names_what_runs_and_counts_from_the_fence(terminal: io.StringIO) -> None:
    with progress.shown(files=False, expected=lambda: 30.0) as told:
        told(RevisionStarted("queue_identity", 1, 2))
        told(FileStarted("queue_identity", "fence.sql"))
        before = terminal.getvalue()
        told(FileDone("queue_identity", "fence.sql"))
        told(Note("[not markup]"))
    assert "queue_identity (1 of 2)" in before
    assert "queue_identity/fence.sql" in before
    assert "of about" not in before
    after = terminal.getvalue()[len(before) :]
    assert " 0 s of about 30 s" in after
    assert "[not markup]\n" in after


def test_without_an_estimate_there_is_the_time_alone(terminal: io.StringIO) -> None:
    with progress.working("Auditing [x]", quiet=False, expected=lambda: None):
        pass
    assert "Auditing [x] 0 s\r" in terminal.getvalue()
    assert "of about" not in terminal.getvalue()


def test_what_can_be_counted_has_numbers_and_an_estimate(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0
    monkeypatch.setattr(progress, "_now", lambda: clock)
    with progress.counted("Preparing [x]", quiet=False) as meter:
        meter.doing("first", 0, 5)
        assert "left" not in terminal.getvalue()
        clock = 4.0
        meter.doing("second", 2, 5)
        assert re.search(r"second .* 2 of 5, \d+ s, about 6 s left", terminal.getvalue())
        meter.doing("rows", 10, 300)  # others than before: there is nothing yet to judge by
        clock = 5.0
        meter.doing("rows", 60, 300)
        assert re.search(r"rows .* 60 of 300, \d+ s, about 5 s left", terminal.getvalue())
        before = len(terminal.getvalue())
        meter.doing("uneven", 61, 300, even=False)
        meter.phase("[phase]")
        meter.say("[said]")
    assert "Preparing [x]" in terminal.getvalue()
    after = terminal.getvalue()[before:]
    assert "left" not in after
    assert re.search(r"\[phase\] \d+ s\r", after)
    assert "[said]\n" in after


def test_a_log_has_what_is_said_and_what_begins_and_json_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = io.StringIO()
    monkeypatch.setattr(output, "console", lambda *, stderr: Console(file=written, width=20))
    for quiet in (True, False):
        with progress.counted("Preparing", quiet=quiet) as meter:
            meter.phase("a phase :warning: [x]")
            meter.doing("a table", 1, 2)
            meter.say("a line that is longer than the log is wide")
        assert written.getvalue() == (
            "" if quiet else "a phase :warning: [x]\na line that is longer than the log is wide\n"
        )


def test_a_replay_shows_how_far_it_is_and_ctrl_c_leaves_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="r") as folder:  # short enough for a server's socket
        Path(folder).chmod(0o755)  # root's server belongs to somebody else
        ours, theirs = pty.openpty()
        child = subprocess.Popen(
            [sys.executable, "-m", "pgflow_migrate", "replay", "--release", "0.16.0"],
            stdout=subprocess.PIPE,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "TMPDIR": folder},
        )
        os.close(theirs)
        drawn = b""
        while not re.search(rb"0\.16\.0/\w+.* 0 of \d\d, \d+ s", drawn):
            drawn += os.read(ours, 65536)
        assert list(Path(folder).iterdir()), "the server is somewhere else"
        child.send_signal(signal.SIGINT)
        told = b""
        try:
            while more := os.read(ours, 65536):
                told += more
        except OSError:  # nobody has the other end any more
            pass
        os.close(ours)
        assert child.stdout is not None
        with child.stdout as stdout:
            assert stdout.read() == b""
        assert child.wait(30) == EXIT_COULD_NOT_RUN
        end = b"error:\x1b[0m Ended by Ctrl-C.\r\nThe databases that were made for it are gone.\r\n"
        assert told.endswith(end), told
        assert list(Path(folder).iterdir()) == []


def test_an_export_counts_tables(
    database_at: Callable[[str], str], invoke: Invoke, terminal: io.StringIO, tmp_path: Path
) -> None:
    dsn = database_at("core_0_16_0")
    assert invoke("export", "--dsn", dsn, str(tmp_path / "file")).exit_code == EXIT_OK
    assert re.search(r"pgflow\.flows .* 0 of \d+, \d+ s", terminal.getvalue())
    written = len(terminal.getvalue())
    json_ = ("--force", "--format", "json")
    assert invoke("export", "--dsn", dsn, str(tmp_path / "file"), *json_).exit_code == EXIT_OK
    assert len(terminal.getvalue()) == written


def test_a_program_that_reads_json_gets_notes_alone(terminal: io.StringIO) -> None:
    with progress.working("Auditing", quiet=True, expected=unasked):
        pass
    with progress.shown(files=True, quiet=True, expected=unasked) as told:
        told(RevisionStarted("queue_identity", 1, 2))
        told(FileStarted("queue_identity", "fence.sql"))
        told(Note("statement_timeout is 2min here."))
    assert terminal.getvalue() == "statement_timeout is 2min here.\n"


def test_json_is_all_that_an_upgrade_prints(database_at: Callable[[str], str], invoke: Invoke) -> None:
    result = invoke("upgrade", "--dry-run", "--format", "json", "--dsn", database_at("queue_identity"))
    assert (result.exit_code, result.stderr) == (EXIT_OK, "")


def test_the_estimate_is_of_the_tasks_that_statistics_know_of(database_at: Callable[[str], str]) -> None:
    old, new = database_at("core_0_16_0"), database_at("queue_identity")
    for dsn in (old, new):
        assert estimate.seconds(dsn, "upgrade") is None
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "update pg_class set reltuples = 2e6 where oid = 'pgflow.step_tasks'::regclass"
            )
    assert (estimate.seconds(old, "upgrade"), estimate.seconds(old, "audit")) == (20.0, 6.0)
    # An upgraded database has nothing to rewrite or to audit.
    assert (estimate.seconds(new, "upgrade"), estimate.seconds(new, "audit")) == (None, None)
    assert estimate.seconds(new, "verify") == 10.0
    with psycopg.connect(new, autocommit=True) as connection:
        connection.execute("drop schema pgflow cascade")
    assert estimate.seconds(new, "verify") is None
