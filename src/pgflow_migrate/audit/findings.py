"""A finding, and a report of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Finding:
    """One row of the audit.

    Attributes:
        severity: ``error`` blocks the upgrade, ``warning`` and ``info`` do not.
        code: stable kebab-case name, see :mod:`pgflow_migrate.audit.codes`.
        flow_slug: the flow as stored; None where none is meant, or several that share the queue.
        step_slug: the step as stored, or None.
        queue_name: the canonical queue name, or None.
        count: how many things were found.
        samples: at most the first 20 of them: run_id/step_slug/task_index, queue/msg_id, names or reasons.
        hint: what to do.
    """

    severity: Severity
    code: str
    flow_slug: str | None
    step_slug: str | None
    queue_name: str | None
    count: int
    samples: tuple[str, ...]
    hint: str

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Finding:
        """A row of the cursor, or a line of a refusal's detail, as a finding.

        Raises:
            KeyError: a column is missing.
        """
        return cls(
            severity=row["severity"],
            code=row["code"],
            flow_slug=row["flow_slug"],
            step_slug=row["step_slug"],
            queue_name=row["queue_name"],
            count=row["count"],
            samples=tuple(row["samples"]),
            hint=row["hint"],
        )


@dataclass(frozen=True)
class LostMessages:
    """Live tasks of a flow whose message is not in their queue, so that no worker will ever claim them.

    Attributes:
        flow_slug: as stored.
        queue_name: the canonical queue name.
        tasks: how many.
        samples: the first 20 of them: run_id/step_slug/task_index.
    """

    flow_slug: str
    queue_name: str
    tasks: int
    samples: tuple[str, ...]


@dataclass(frozen=True)
class AuditReport:
    """What the audit found. A point-in-time report: the upgrade checks again under its locks.

    Attributes:
        findings: in the report's order, errors first.
        database: name of the database.
        server: version of PostgreSQL, such as ``18.1``.
        taken_at: the time of the snapshot that was read, on the server's clock.
        lost: the live tasks without a message, by flow and queue, which block nothing; None where the role
            may not read what it takes to say.
    """

    findings: tuple[Finding, ...]
    database: str
    server: str
    taken_at: datetime
    lost: tuple[LostMessages, ...] | None = ()

    @property
    def lost_tasks(self) -> int:
        """How many live tasks are known to have no message."""
        return sum(lost.tasks for lost in self.lost or ())

    @property
    def blocking(self) -> tuple[Finding, ...]:
        """The findings that block the upgrade."""
        return tuple(finding for finding in self.findings if finding.severity == "error")

    @property
    def already_upgraded(self) -> bool:
        """Whether the database has queue identity, so that there is nothing to audit."""
        return any(finding.code == "already-upgraded" for finding in self.findings)

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        """The findings of one severity."""
        return tuple(finding for finding in self.findings if finding.severity == severity)
