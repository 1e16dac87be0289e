"""The command ``pgflow-migrate`` as a process, forked from one that has imported everything already."""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

PATIENCE = 60.0
"""Seconds within which a command has to end."""

# Starting a process asks after all others, and of two threads that ask after the same one, one is told 255.
_turn = threading.Lock()

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.faults.warm"])


@dataclass(frozen=True)
class Said:
    """How a command ended.

    Attributes:
        exit_code: negative: the signal that killed it.
        document: its JSON, None when it printed nothing.
        stderr: its progress and complaints.
    """

    exit_code: int
    document: dict[str, Any] | None
    stderr: str

    @property
    def status(self) -> str:
        """``upgraded``, ``already-upgraded``, ``failed`` … as the document has it; empty without one."""
        return str(self.document["status"]) if self.document else ""

    @property
    def text(self) -> str:
        """What it said went wrong and what to do, in one line."""
        error = (self.document or {}).get("error") or {}
        return f"{error.get('message', '')} {error.get('remedy', '')}".strip()


class Client:
    """A running command; its output goes to files, so that nobody has to read along."""

    def __init__(self, process: ForkServerProcess, folder: Path) -> None:
        self.process = process
        self._folder = folder

    def said(self) -> Said:
        """Wait for its end.

        Raises:
            TimeoutError: it does not end.
        """
        if not connection.wait([self.process.sentinel], PATIENCE):
            raise TimeoutError("the client does not end")
        with _turn:
            self.process.join()
            code = self.process.exitcode
        assert code is not None
        out = (self._folder / "out").read_text(encoding="utf-8")
        err = (self._folder / "err").read_text(encoding="utf-8")
        return Said(code, json.loads(out) if out else None, err)


@contextmanager
def upgrading(dsn: str) -> Iterator[Client]:
    """Run ``pgflow-migrate upgrade --format json``; killed at the end if it still runs."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["upgrade", "--dsn", dsn, "--format", "json"]
        process = _processes.Process(target=_run, args=(arguments, folder))
        with _turn:
            process.start()
        try:
            yield Client(process, Path(folder))
        finally:
            with _turn:
                process.kill()
                process.join()
                process.close()


def _run(arguments: list[str], folder: str) -> None:
    from pgflow_migrate.cli import main

    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(Path(folder) / name, os.O_WRONLY | os.O_CREAT, 0o600), number)
    main(arguments, prog_name="pgflow-migrate")
