"""A violation, and the result of a verification."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pgflow_migrate.verify.checks import Check, checks_at

if TYPE_CHECKING:
    import psycopg

SQLSTATE = "PF004"
"""What the upgrade's last looks raise with (alembic/sql/queue_identity/verify.sql, dirty_runs/verify.sql)."""


@dataclass(frozen=True)
class Violation:
    """What breaks one invariant in one flow, queue or schema.

    Attributes:
        check: the invariant, see :mod:`pgflow_migrate.verify.checks`.
        subject: what it was found in, such as ``flow Orders``; the name as stored.
        count: how many things break it.
        samples: at most the first 20 of them: run_id/step_slug/task_index, queue/msg_id, names or reasons.
        hint: what to do.
    """

    check: str
    subject: str
    count: int
    samples: tuple[str, ...]
    hint: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Violation:
        """A row of the cursor, or a line of an error's detail, as a violation.

        Raises:
            KeyError: a column is missing.
        """
        return cls(row["check"], row["subject"], row["count"], tuple(row["samples"]), row["hint"])

    @property
    def sampled(self) -> str:
        """The samples in a line, with a sign that there are more."""
        more = "; …" if self.samples and len(self.samples) < self.count else ""
        return "; ".join(self.samples) + more

    @property
    def found(self) -> str:
        """Subject, count and samples in a line, each where it says something."""
        counted = str(self.count) if self.count > len(self.samples) else ""
        return ": ".join(part for part in (self.subject, counted, self.sampled) if part)

    def __str__(self) -> str:
        return f"{self.check}: {self.found}. {self.hint}"


@dataclass(frozen=True)
class Looked:
    """How much was looked at."""

    flows: int
    steps: int
    tasks: int


@dataclass(frozen=True)
class Verification:
    """What was found.

    Attributes:
        violations: in the order of :data:`pgflow_migrate.verify.checks.CHECKS`.
        looked_at: how much there was to look at.
        revision: the revision that the catalogue has; later ones promise more.
        database: name of the database.
        server: version of PostgreSQL, such as ``18.1``.
        taken_at: the time of the snapshot that was read, on the server's clock.
    """

    violations: tuple[Violation, ...]
    looked_at: Looked
    revision: str
    database: str
    server: str
    taken_at: datetime

    @property
    def checks(self) -> dict[str, Check]:
        """What was checked, by name."""
        return checks_at(self.revision)

    def of(self, check: str) -> tuple[Violation, ...]:
        """The violations of one invariant."""
        return tuple(violation for violation in self.violations if violation.check == check)


def violations_from_error(error: psycopg.Error) -> tuple[Violation, ...]:
    """The violations in ``error``'s detail, a JSON object a line; none unless it is the last look's."""
    if error.sqlstate != SQLSTATE:
        return ()
    # Not splitlines(): JSON leaves U+2028 and its like as they are.
    lines = (error.diag.message_detail or "").split("\n")
    return tuple(Violation.from_row(json.loads(line)) for line in lines if line)
