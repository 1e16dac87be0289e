"""What can go wrong with a store, beside what :mod:`pgflow_migrate.errors` has."""

from __future__ import annotations

from pgflow_migrate.errors import BlockedError, PgflowMigrateError

__all__ = ["StepFailed", "StepRefused"]


class StepRefused(BlockedError):  # noqa: N818 - as its like in errors.py
    """A step met what it must not pass: a row or a structure. It was rolled back.

    Attributes:
        step: its name.
        reason: what it met.
    """

    def __init__(self, step: str, reason: str, remedy: str = "") -> None:
        super().__init__(f"Step {step} cannot be done: {reason}.", remedy)
        self.step = step
        self.reason = reason


class StepFailed(PgflowMigrateError):  # noqa: N818
    """A statement of a step failed for another reason than the rows. It was rolled back.

    Attributes:
        step: its name.
        reason: what SQLite said.
    """

    def __init__(self, step: str, reason: str, remedy: str = "") -> None:
        super().__init__(f"Step {step} failed: {reason}.", remedy)
        self.step = step
        self.reason = reason
