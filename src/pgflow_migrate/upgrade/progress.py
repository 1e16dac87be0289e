"""What a listener is told while an upgrade runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Note:
    """Something that a person should know, a sentence."""

    text: str


@dataclass(frozen=True)
class Found:
    """What the database was before.

    Attributes:
        release: the release's name, or None where there is no pgflow.
        revision: the revision that it corresponds to, or None where there is no pgflow.
        recorded: whether it said so itself, by a version table, and did not have to be identified.
    """

    release: str | None
    revision: str | None
    recorded: bool


@dataclass(frozen=True)
class RevisionStarted:
    """A revision is about to run; it is number ``number`` of ``of``."""

    revision: str
    number: int
    of: int


@dataclass(frozen=True)
class FileStarted:
    """A SQL file of the revision that runs is about to be sent."""

    revision: str
    file: str


@dataclass(frozen=True)
class FileDone:
    """A SQL file has been executed; it is not committed yet."""

    revision: str
    file: str


@dataclass(frozen=True)
class RevisionApplied:
    """A revision has run, in ``seconds``; it is not committed yet."""

    revision: str
    seconds: float


Event = Note | Found | RevisionStarted | FileStarted | FileDone | RevisionApplied
Listener = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The listener that does not listen."""
