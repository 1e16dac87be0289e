"""A closed or full output: what happened stays what it is, and is said where it still can be."""

from __future__ import annotations

import io
import json
import os
import shlex
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from pgflow_migrate.cli import main, output
from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, EXIT_FENCE, EXIT_OK
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server
from pgflow_migrate.work_center import baseline

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason=f"there is no {FULL} on this system")
COMMAND = (sys.executable, "-m", "pgflow_migrate")


def version(dsn: str) -> str:
    with psycopg.connect(dsn, autocommit=True) as connection:
        rows = connection.execute("table pgflow_migrate.alembic_version").fetchall()
    return ", ".join(str(name) for (name,) in rows)


def run(*arguments: str, **streams: Any) -> subprocess.CompletedProcess[str]:
    """The command with streams other than pipes that are read to the end."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run([*COMMAND, *arguments], **given, text=True, check=False, timeout=120)


def run_with_nobody_reading(*arguments: str, stream: str) -> subprocess.CompletedProcess[str]:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return run(*arguments, **{stream: writing})
    finally:
        os.close(writing)


def run_with_closed(*arguments: str, number: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", f'exec "$@" {number}>&-', "sh", *COMMAND, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("format_", ["table", "json"])
@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("broken", "Broken pipe"),
        ("closed", "it is closed"),
        pytest.param("full", "No space left on device", marks=needs_full),
    ],
)
def test_an_upgrade_that_cannot_be_reported_is_committed_and_told_on_stderr(
    database_at: Callable[[str], str], how: str, reason: str, format_: str
) -> None:
    dsn = database_at("core_0_16_0")
    arguments = ("upgrade", "--dsn", dsn, "--format", format_)
    if how == "broken":
        done = run_with_nobody_reading(*arguments, stream="stdout")
    elif how == "closed":
        done = run_with_closed(*arguments, number=1)
    else:
        with FULL.open("w") as full:
            done = run(*arguments, stdout=full)
    assert done.returncode == EXIT_OK, done.stderr
    assert version(dsn) == "dirty_runs"
    told = done.stderr.splitlines()
    assert told[-4].startswith("Upgraded from 0.16.0 to dirty_runs in ")
    assert told[-1] == f"The output could not be written: {reason}."


@pytest.mark.parametrize("how", ["broken", "closed", pytest.param("full", marks=needs_full)])
def test_progress_that_nobody_hears_ends_no_upgrade(database_at: Callable[[str], str], how: str) -> None:
    dsn = database_at("core_0_15_1")
    arguments = ("--debug", "upgrade", "--dsn", dsn)
    if how == "broken":
        done = run_with_nobody_reading(*arguments, stream="stderr")
    elif how == "closed":
        done = run_with_closed(*arguments, number=2)
    else:
        with FULL.open("w") as full:
            done = run(*arguments, stderr=full)
    assert done.returncode == EXIT_OK
    assert done.stdout.startswith("Upgraded from 0.15.1 to dirty_runs in ")
    assert len(done.stdout.splitlines()) == 3
    assert version(dsn) == "dirty_runs"


def test_an_error_keeps_its_exit_code(database_at: Callable[[str], str]) -> None:
    dsn = database_at("core_0_16_0")
    with psycopg.connect(dsn) as holder:
        holder.execute("lock table pgflow.runs in row exclusive mode")
        bounds = ("--lock-timeout", "100ms", "--max-wait", "100ms")
        options = ("upgrade", "--dsn", dsn, *bounds, "--format", "json")
        for stream in ("stdout", "stderr"):
            done = run_with_nobody_reading(*options, stream=stream)
            assert done.returncode == EXIT_FENCE
    assert version(dsn) == "core_0_16_0"


@needs_full
@pytest.mark.parametrize("format_", ["table", "json", "junit", "github", "html"])
@pytest.mark.parametrize("to", ["stdout", "--output"])
def test_a_report_that_does_not_fit_is_one_sentence(
    database_at: Callable[[str], str], format_: str, to: str
) -> None:
    dsn = database_at("core_0_16_0")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("select pgflow.create_flow('bad__slug')")
    arguments = ("audit", "--dsn", dsn, "--format", format_)
    if to == "--output":
        done = run(*arguments, "--output", str(FULL))
    else:
        with FULL.open("w") as full:
            done = run(*arguments, stdout=full)
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert done.stderr.splitlines()[0] == "error: The output could not be written: No space left on device."
    assert len(done.stderr.splitlines()) <= 2


LOOKS = (
    "--version",
    "docs upgrade",
    "audit --dsn {old} --format html",
    "audit --sql",
    "audit --json-schema",
    "status --dsn {old} --watch 60 --format json",
    "--debug verify --dsn {new}",
    "dirty-runs inventory",
    "work-center verify {store}",
)


@pytest.fixture(scope="module")
def looked_at(
    server: Server, templates: Templates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """What is looked at."""
    store = tmp_path_factory.mktemp("store") / "store.db"
    with sqlite3.connect(store) as connection:
        baseline.create(connection)
    connection.close()
    yield {
        "old": templates.clone("core_0_16_0", "looked_at_old"),
        "new": templates.clone("dirty_runs", "looked_at_new"),
        "store": str(store),
    }
    for name in ("old", "new"):
        server.drop_database(f"looked_at_{name}")


@pytest.mark.parametrize("command", LOOKS)
def test_a_command_that_only_looks_ends_without_a_word_when_its_reader_has_gone(
    looked_at: dict[str, str], command: str
) -> None:
    arguments = [argument.format(**looked_at) for argument in shlex.split(command)]
    done = run_with_nobody_reading(*arguments, stream="stdout")
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["replay", "demo"])
def test_so_does_a_trial(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise output.ReaderGoneError("Nobody is there.")

    monkeypatch.setattr("pgflow_migrate.servers.open_server", gone)
    result = CliRunner().invoke(main, [name, "--format", "json"])
    assert (result.exit_code, result.stdout) == (EXIT_COULD_NOT_RUN, "")
    assert "error" not in result.stderr


def test_a_command_that_has_changed_something_says_so_all_the_same(
    looked_at: dict[str, str], tmp_path: Path
) -> None:
    for arguments in (
        ["export", str(tmp_path / "file"), "--dsn", looked_at["old"]],
        ["dirty-runs", "reconcile", "--next", "--dsn", looked_at["new"]],
    ):
        done = run_with_nobody_reading(*arguments, stream="stdout")
        assert done.returncode == EXIT_COULD_NOT_RUN
        assert done.stderr.splitlines() == [
            "error: The output could not be written: Broken pipe.",
            "Whatever else the command did is done.",
        ]
    assert (tmp_path / "file").is_file()


@needs_full
@pytest.mark.parametrize("command", ["--version", "docs upgrade"])
def test_a_full_output_is_one_sentence_without_a_database_too(command: str) -> None:
    with FULL.open("w") as full:
        done = run(*command.split(), stdout=full)
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert done.stderr.splitlines()[0] == "error: The output could not be written: No space left on device."
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_what_an_output_cannot_hold_is_escaped(
    tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / os.fsdecode(b"caf\xc3\xa9 \xff")
    shown = "caf\\u00e9 \\udcff" if encoding == "ascii" else "café \\udcff"
    with sqlite3.connect(file) as store:
        baseline.create(store)
    store.close()

    def printed(*arguments: str) -> str:
        written = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdout", written)
            main(["work-center", "status", str(file), *arguments], standalone_mode=False)
        written.seek(0)
        return written.read()

    assert f"{tmp_path}/{shown} (" in printed().splitlines()[0]
    document = printed("--format", "json")
    assert f'{tmp_path}/café \\udcff"' in document  # UTF-8 always: a program reads it
    assert json.loads(document)["path"] == str(file)
