"""What long work shows meanwhile: a bar on a terminal, nothing where a program reads the result."""

from __future__ import annotations

import io
from collections.abc import Callable

import psycopg
import pytest
from click.testing import Result
from rich.console import Console

from pgflow_migrate.cli import output, progress
from pgflow_migrate.errors import EXIT_OK
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
    assert "Auditing [x]" in terminal.getvalue()
    assert " 0 s" in terminal.getvalue()
    assert "of about" not in terminal.getvalue()


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
