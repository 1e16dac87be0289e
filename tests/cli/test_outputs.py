"""A closed or full output: what happened stays what it is, and is said where it still can be."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgflow_migrate.cli import main
from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, EXIT_FENCE, EXIT_OK
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


@pytest.mark.parametrize("command", ["status", "audit"])
def test_a_pipe_that_nobody_reads_is_one_sentence(database_at: Callable[[str], str], command: str) -> None:
    done = run_with_nobody_reading(command, "--dsn", database_at("core_0_16_0"), stream="stdout")
    assert done.returncode == EXIT_COULD_NOT_RUN
    assert done.stderr.splitlines()[0] == "error: The output could not be written: Broken pipe."
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
    assert f'{tmp_path}/{shown}"' in document
    assert json.loads(document)["path"] == str(file)
