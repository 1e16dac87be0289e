"""The steps, in order. Written down because commands need them without Alembic, which reads its own files of
``alembic/versions/work_center``. A test holds both together.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """A step of the chain.

    Attributes:
        name: as the store's ledger has it, such as ``28-run-identity``.
        alias: the name under which early programs recorded it, or None.
    """

    name: str
    alias: str | None = None

    @property
    def number(self) -> int:
        """The schema version that a store has after it."""
        return int(self.name.partition("-")[0])

    @property
    def revision(self) -> str:
        """Its id as an Alembic revision, in which '-' is not allowed."""
        return f"wc_{self.name.replace('-', '_')}"


_NAMES = (
    "23-conversation-stream",
    "24-action-stream",
    "25-engine-turns",
    "26-operation-identity",
    "27-coordinator-mailbox",
    "28-run-identity",
    "29-runtime-indexes",
    "30-backfill-projections",
    "31-reliability-guards",
    "32-engine-turn-status-contract",
    "33-coordinator-provider-turns",
    "34-engine-turn-status-repair",
    "35-coordinator-provider-claims",
)
_WITH_ALIAS = 6  # the first ones were released with "-v1" behind the name

STEPS = tuple(Step(name, f"{name}-v1" if place < _WITH_ALIAS else None) for place, name in enumerate(_NAMES))
"""Every step, the oldest first."""

ALIASES = {step.alias: step.name for step in STEPS if step.alias is not None}
"""Names under which steps were recorded once, to their present ones."""


def checksum(name: str) -> str:
    """What the ledger holds beside ``name``: of the name alone, because a released step never changes."""
    return hashlib.sha256(f"work-center-migration:{name}:v1".encode()).hexdigest()


CHECKSUMS = {name: checksum(name) for name in (*_NAMES, *ALIASES)}
"""Those of every name that a ledger may hold."""


def find(text: str) -> Step | None:
    """The step that a person means by ``30``, ``30-backfill-projections`` or the revision's id; else None."""
    for step in STEPS:
        if text in (str(step.number), step.name, step.alias, step.revision):
            return step
    return None


def up_to(step: Step) -> tuple[Step, ...]:
    """``step`` and all before it."""
    return STEPS[: STEPS.index(step) + 1]
