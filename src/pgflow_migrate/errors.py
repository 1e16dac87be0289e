"""What can go wrong, each with the exit code that the command line ends with.

An error is one sentence on what is wrong (``message``) and one on what to do (``remedy``).
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from pgflow_migrate import durations

if TYPE_CHECKING:
    import psycopg

    from pgflow_migrate.audit.findings import Finding

__all__ = [
    "EXIT_BLOCKED",
    "EXIT_COULD_NOT_RUN",
    "EXIT_FENCE",
    "EXIT_OK",
    "EXIT_USAGE",
    "BlockedError",
    "Blocker",
    "FenceError",
    "Interrupted",
    "LiveWorker",
    "LiveWorkersError",
    "PgflowMigrateError",
    "SqlFileError",
]

EXIT_OK = 0
EXIT_COULD_NOT_RUN = 1
EXIT_USAGE = 2
EXIT_BLOCKED = 3
EXIT_FENCE = 4


class PgflowMigrateError(Exception):
    """Base of every error that the toolkit raises on purpose: it could not run.

    Attributes:
        message: one sentence on what is wrong.
        remedy: one sentence on what to do, or empty.
        details: what belongs to it, a line each, such as the differences from a release.
    """

    exit_code = EXIT_COULD_NOT_RUN

    def __init__(self, message: str, remedy: str = "", details: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.details = details

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".rstrip()


class BlockedError(PgflowMigrateError):
    """The database was looked at and refused: findings, a changed checksum, a failed scenario.

    Attributes:
        findings: the findings of severity error that block, when it is they that do.
    """

    exit_code = EXIT_BLOCKED

    def __init__(self, message: str, remedy: str = "", findings: tuple[Finding, ...] = ()) -> None:
        super().__init__(message, remedy)
        self.findings = findings


@dataclass(frozen=True)
class LiveWorker:
    """A worker of the old release that has given a sign of life.

    Attributes:
        worker_id: its id.
        function_name: the worker function that it runs.
        queue_name: the queue that it reads.
        start_mode: ``http`` (started by ``ensure_workers()``), ``process``, or ``unknown``.
        last_heartbeat_at: ISO 8601, in UTC.
        heartbeat_age: seconds since then on the server's clock; None when that time is infinite.
    """

    worker_id: str
    function_name: str
    queue_name: str
    start_mode: str
    last_heartbeat_at: str
    heartbeat_age: float | None

    def __str__(self) -> str:
        at = self.last_heartbeat_at
        with contextlib.suppress(ValueError):
            at = f"{datetime.fromisoformat(at).astimezone(timezone.utc):%Y-%m-%d %H:%M:%S %Z}"
        when = at if self.heartbeat_age is None else f"{durations.age(self.heartbeat_age)} ago ({at})"
        return (
            f'worker {self.worker_id} of function "{self.function_name}" ({self.start_mode}) on queue'
            f' "{self.queue_name}", last heartbeat {when}'
        )


class LiveWorkersError(BlockedError):
    """Workers are at work, and were not to be ignored; nothing was changed.

    Attributes:
        workers: they.
    """

    def __init__(self, message: str, remedy: str, workers: tuple[LiveWorker, ...]) -> None:
        super().__init__(message, remedy)
        self.details = tuple(str(worker) for worker in workers)
        self.workers = workers


@dataclass(frozen=True)
class Blocker:
    """A session that holds what was waited for. What we may not see of it is empty or None.

    Attributes:
        pid: its server process; None for a prepared transaction, which has none.
        user: its role.
        application: its application_name, or the name of the prepared transaction.
        state: ``prepared transaction``, or as pg_stat_activity has it, such as ``idle in transaction``.
        transaction_age: seconds since its transaction began.
        query_age: seconds since its last statement began.
        query: that statement, at most 120 characters of it.
        holds: tables that it holds locks on, such as ``pgflow.runs``; ``pgflow-migrate itself`` when it is
            another upgrade; ``a snapshot from before the upgrade``, in which rewritten tables would be empty.
    """

    pid: int | None
    user: str
    application: str
    state: str
    transaction_age: float | None
    query_age: float | None
    query: str
    holds: tuple[str, ...]

    def __str__(self) -> str:
        known = [f"user {self.user}"] if self.user else []
        known += [f'"{self.application}"'] if self.application and self.pid is not None else []
        known += [self.state] if self.state else []
        if self.transaction_age is not None:
            known.append(f"in its transaction for {self.transaction_age:.0f} s")
        if self.query_age is not None:
            known.append(f"last statement {self.query_age:.0f} s ago: {self.query}")
        described = f" ({', '.join(known)})" if known else ""
        name = f'"{self.application}"' if self.pid is None else f"pid {self.pid}"
        return f"{name}{described} holds {', '.join(self.holds)}"


class FenceError(PgflowMigrateError):
    """The locks were not obtained in time; nothing was changed and it is safe to repeat.

    Attributes:
        blockers: who held locks on pgflow just after we gave up; they may have ended since.
    """

    exit_code = EXIT_FENCE

    def __init__(self, message: str, remedy: str = "", blockers: tuple[Blocker, ...] = ()) -> None:
        super().__init__(message, remedy, tuple(str(blocker) for blocker in blockers))
        self.blockers = blockers


class SqlFileError(PgflowMigrateError):
    """A statement of a revision's SQL file failed.

    Attributes:
        revision: the revision's id.
        file: the file's path below the revision's folder.
        cause: what the server or psycopg said.
    """

    def __init__(self, revision: str, file: str, cause: psycopg.Error) -> None:
        text = " ".join((cause.diag.message_primary or str(cause)).split())
        super().__init__(
            f"{revision}/{file} failed: {text}", " ".join((cause.diag.message_hint or "").split())
        )
        self.revision = revision
        self.file = file
        self.cause = cause


class Interrupted(KeyboardInterrupt):
    """Ctrl-C or a signal ended the work, which was rolled back.

    A KeyboardInterrupt, so that code which expects one of a failing call does not take it for a failure.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
