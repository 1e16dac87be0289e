"""Running the command line in this process, and as a process of its own."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pgflow_migrate.cli import main

Invoke = Callable[..., Result]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection string from the environment that the tests run in."""
    for name in ("PGFLOW_DSN", "DATABASE_URL", "PGSERVICE", "PGPASSWORD", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def runner() -> CliRunner:
    """A runner that keeps stdout and stderr apart; older versions of click have to be told."""
    options: dict[str, Any] = (
        {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    )
    return CliRunner(**options)


@pytest.fixture(name="runner")
def runner_() -> CliRunner:
    """For commands of a test's own."""
    return runner()


@pytest.fixture
def invoke() -> Invoke:
    """``invoke("upgrade", "--dsn", …)`` in this process; stdout and stderr are apart."""

    def run(*arguments: str) -> Result:
        return runner().invoke(main, list(arguments), prog_name="pgflow-migrate")

    return run


@pytest.fixture
def run() -> Run:
    """The same as a process of its own."""

    def started(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "pgflow_migrate", *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, **environment},
        )

    return started
