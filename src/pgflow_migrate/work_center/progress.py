"""What a listener is told while a store is upgraded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["BackupMade", "Event", "Listener", "Note", "RowsRead", "StepDone", "StepStarted"]


@dataclass(frozen=True)
class Note:
    """Something that a person should know, a sentence."""

    text: str


@dataclass(frozen=True)
class BackupMade:
    """The backup at ``path`` is complete, checked and on disk; ``size`` in bytes."""

    path: str
    size: int
    seconds: float


@dataclass(frozen=True)
class StepStarted:
    """A step is about to run; it is number ``number`` of ``of``."""

    step: str
    number: int
    of: int


@dataclass(frozen=True)
class RowsRead:
    """A step that reads rows has read ``done`` of ``of`` rows of ``table``."""

    step: str
    table: str
    done: int
    of: int


@dataclass(frozen=True)
class StepDone:
    """A step is recorded, and committed unless the transaction is the caller's.

    Attributes:
        step: its name.
        outcome: ``applied``, or ``adopted`` when it was there under its earlier name.
        seconds: how long it took.
        rows: the rows that a backfill has inserted, by table; only tables that got any.
    """

    step: str
    outcome: str
    seconds: float
    rows: dict[str, int]


Event = Note | BackupMade | StepStarted | RowsRead | StepDone
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener that does not listen."""
