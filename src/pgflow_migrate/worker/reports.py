"""Bringing the results of handlers to the database, through lost connections and restarts."""

from __future__ import annotations

import enum
import json
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

from pgflow_migrate.database import Connection
from pgflow_migrate.worker import calls
from pgflow_migrate.worker.claims import ClaimedTask
from pgflow_migrate.worker.retries import PASSING, Backoff, RightMissingError, describe
from pgflow_migrate.worker.session import Session
from pgflow_migrate.worker.settings import Settings

_T = TypeVar("_T")


class Result(enum.Enum):
    """What became of a claimed task."""

    COMPLETED = "completed"
    FAILED = "failed"
    LATE = "late"  # step or run had ended before the output came
    UNREPORTED = "unreported"  # the database's recovery will give it to somebody again


class NoJsonError(ValueError):
    """A handler returned something that JSON has no words for."""


def to_json(output: Any) -> str:
    """A handler's output as JSON text; None, 0, False and empty values stay what they are.

    Raises:
        NoJsonError: it is none.
    """
    try:
        return json.dumps(output, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise NoJsonError(f"the output is no JSON: {error}") from error


def error_text(error: BaseException) -> str:
    """An exception as the error message of a task, in characters that PostgreSQL can store."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


class Patience:
    """Repeats what fails for a reason that passes, until it works or the worker has to leave."""

    def __init__(self, settings: Settings, stopping: threading.Event, log: logging.Logger) -> None:
        """``stopping`` is set when the worker has been told to leave."""
        self._settings = settings
        self._stopping = stopping
        self._log = log

    def call(self, session: Session, what: str, work: Callable[[Connection], _T], *, grace: float) -> _T:
        """``session.call(work)``, again and again.

        Args:
            session: the connection.
            what: for the log, such as ``complete_task``.
            work: may run several times, even after a commit whose answer was lost.
            grace: seconds for which it goes on once the worker is stopping.

        Raises:
            psycopg.Error: one that does not pass, or did not within ``grace``.
            UnreachableError: the same of the connection.
        """
        backoff = Backoff(self._settings.first_retry, self._settings.longest_retry)
        end: float | None = None
        while True:
            try:
                return session.call(work)
            except PASSING as error:
                if self._stopping.is_set() and end is None:
                    end = time.monotonic() + grace
                left = float("inf") if end is None else end - time.monotonic()
                if left <= 0:
                    raise
                delay = min(backoff.next(), left)
                self._log.warning("%s failed, again in %.1f s: %s", what, delay, describe(error))
            if end is None:
                self._stopping.wait(delay)
            else:
                time.sleep(delay)


class Reports:
    """Reports results; threads may share it."""

    def __init__(
        self, session: Session, patience: Patience, worker_id: str, grace: float, log: logging.Logger
    ) -> None:
        """``grace``: seconds for which a report is tried once the worker is stopping."""
        self._session = session
        self._patience = patience
        self._worker_id = worker_id
        self._grace = grace
        self._log = log

    def complete(self, task: ClaimedTask, output: str) -> Result:
        """Report an output (a JSON text); one that the database refuses is a failed attempt.

        Raises:
            RightMissingError: the role may not; the task is left to recovery.
        """
        try:
            status = self._call(
                f"complete_task for {task}", lambda connection: calls.complete_task(connection, task, output)
            )
        except PASSING as error:
            return self._unreported(task, error)
        except psycopg.errors.InsufficientPrivilege as error:
            raise RightMissingError(error) from error
        except psycopg.Error as error:
            return self.fail(task, f"complete_task failed: {describe(error)}")
        self._log.debug("%s is reported: %s", task, status or "gone")
        # A wrong type for a map behind it fails the task; a run that ended meanwhile has cancelled it.
        return {"completed": Result.COMPLETED, "failed": Result.FAILED}.get(status or "", Result.LATE)

    def fail(self, task: ClaimedTask, message: str) -> Result:
        """Report a failed attempt.

        Raises:
            RightMissingError: the role may not; the task is left to recovery.
        """
        self._log.warning("%s failed: %s", task, " ".join(message.split()))
        try:
            self._call(
                f"fail_task for {task}",
                lambda connection: calls.fail_task(connection, task, message, self._worker_id),
            )
        except psycopg.errors.InsufficientPrivilege as error:
            raise RightMissingError(error) from error
        except (*PASSING, psycopg.Error) as error:
            return self._unreported(task, error)
        return Result.FAILED

    def flow_input(self, run_id: str) -> Any:
        """The input of a run, for a handler that asks for it."""
        return self._call(
            f"reading the input of run {run_id}", lambda connection: calls.flow_input(connection, run_id)
        )

    def _call(self, what: str, work: Callable[[Connection], _T]) -> _T:
        return self._patience.call(self._session, what, work, grace=self._grace)

    def _unreported(self, task: ClaimedTask, error: Exception) -> Result:
        self._log.error("%s could not be reported and is left to recovery: %s", task, describe(error))
        return Result.UNREPORTED
