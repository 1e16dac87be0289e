"""What can go wrong, each with the exit code that the command line ends with.

An error is one sentence on what is wrong (``message``) and one on what to do (``remedy``).
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_COULD_NOT_RUN = 1
EXIT_USAGE = 2
EXIT_BLOCKED = 3
EXIT_FENCE = 4


class PgflowMigrateError(Exception):
    """Base of every error that the toolkit raises on purpose: it could not run."""

    exit_code = EXIT_COULD_NOT_RUN

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".rstrip()


class BlockedError(PgflowMigrateError):
    """The database was looked at and refused: findings, a changed checksum, a failed scenario."""

    exit_code = EXIT_BLOCKED


class FenceError(PgflowMigrateError):
    """The locks were not obtained in time; nothing was changed and it is safe to repeat."""

    exit_code = EXIT_FENCE
