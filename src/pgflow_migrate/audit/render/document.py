"""For programs: JSON."""

from __future__ import annotations

import dataclasses
from typing import Any

from pgflow_migrate.audit.findings import AuditReport
from pgflow_migrate.audit.render import words


def document(report: AuditReport) -> dict[str, Any]:
    """The report in JSON's own types. Message ids stand in samples, as text: no precision is lost."""
    return {
        "schema": "urn:pgflow-migrate:audit:1",
        "status": _status(report),
        "database": report.database,
        "server": report.server,
        "taken_at": report.taken_at.isoformat(),
        "note": words.verdict(report),
        "counts": words.counts(report.findings),
        "lost_messages": None
        if report.lost is None
        else [{**dataclasses.asdict(lost), "samples": list(lost.samples)} for lost in report.lost],
        "findings": [
            {**dataclasses.asdict(finding), "samples": list(finding.samples)} for finding in report.findings
        ],
    }


def _status(report: AuditReport) -> str:
    if report.already_upgraded:
        return "already-upgraded"
    return "blocked" if report.blocking else "clean"
