"""Which database errors pass by themselves, and how long to wait before trying again."""

from __future__ import annotations

import random
from collections.abc import Callable

import psycopg

from pgflow_migrate.errors import PgflowMigrateError


class UnreachableError(PgflowMigrateError):
    """No connection could be had just now."""


class RightMissingError(PgflowMigrateError):
    """The role lacks a right, which no repetition gives it."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(
            f"The worker's role lacks a right: {describe(error)}.",
            "Grant it (pgflow-migrate docs worker lists what a worker needs), or connect as the owner of"
            " schema pgflow.",
        )


# Lost connections, restarts, deadlocks, lock and statement timeouts, full disks; and a server that became a
# read-only standby, which it will not stay for those who connect by a name.
PASSING = (
    UnreachableError,
    psycopg.OperationalError,
    psycopg.InterfaceError,
    psycopg.errors.ReadOnlySqlTransaction,
)


class Backoff:
    """Waiting times that double up to a limit, each shortened by a random part of up to a half.

    The random part keeps workers that one event has thrown out from coming back all at once.
    """

    def __init__(self, first: float, limit: float, chance: Callable[[], float] = random.random) -> None:
        """Times in seconds; ``chance`` gives numbers from 0 to below 1."""
        self._first = first
        self._limit = limit
        self._chance = chance
        self._doublings = 0

    def next(self) -> float:
        """Seconds to wait now."""
        whole: float = min(self._limit, self._first * 2**self._doublings)
        if whole < self._limit:
            self._doublings += 1
        return whole * (1 - self._chance() / 2)

    def reset(self) -> None:
        """Begin at the first again: something worked."""
        self._doublings = 0


def describe(error: BaseException) -> str:
    """A database error in one line; of a server's error neither detail nor context, which may quote data."""
    if isinstance(error, psycopg.Error) and error.diag.message_primary:
        return f"{error.sqlstate} {' '.join(error.diag.message_primary.split())}"
    return " ".join(str(error).split()) or type(error).__name__
