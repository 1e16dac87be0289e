"""Processes that upgrade a store and die: forked from this one, so that a death costs milliseconds."""

from __future__ import annotations

import os
import resource
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pgflow_migrate.work_center import store

LOST = 125
"""The exit status of a process that failed otherwise than it should."""


def forked(do: Callable[[], int | None], meanwhile: Callable[[int], None] = lambda pid: None) -> int:
    """Run ``do`` in a child; its exit status, negative for the signal that ended it.

    Args:
        do: what the child does; its result is the exit status.
        meanwhile: called with the child's process id.
    """
    pid = os.fork()
    if pid == 0:
        status = LOST
        try:
            status = do() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    meanwhile(pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextmanager
def killed_before(statement: int) -> Iterator[list[str]]:
    """Kill this process by SIGKILL before its connection to a store executes this statement, from 1.

    Yields:
        The statements so far, those of triggers among them.
    """
    seen: list[str] = []

    def trace(sql: str) -> None:
        seen.append(sql)
        if len(seen) == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    with each_connection(lambda connection: connection.set_trace_callback(trace)):
        yield seen


@contextmanager
def each_connection(do: Callable[[sqlite3.Connection], object]) -> Iterator[None]:
    """Call ``do`` with every connection that is opened for writing to a store."""
    connect = store._connect

    def connected(path: Path, mode: str, lock_timeout: object) -> sqlite3.Connection:
        connection = connect(path, mode, lock_timeout)  # type: ignore[arg-type]
        if mode == "rw":
            do(connection)
        return connection

    store._connect = connected
    try:
        yield
    finally:
        store._connect = connect


def limit_files(size: int, *, deadly: bool) -> None:
    """Let no file of this process grow beyond ``size`` bytes.

    Args:
        size: in bytes.
        deadly: whether the kernel ends the process where it tries; otherwise the writing fails.
    """
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
