"""What stands in the way of the upgrade: as a read-only report, and from a refused upgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgflow_migrate import lazily

if TYPE_CHECKING:
    from pgflow_migrate.audit.codes import CODES, Code
    from pgflow_migrate.audit.findings import AuditReport, Finding, LostMessages, Severity
    from pgflow_migrate.audit.outlook import Outlook, QueueHealth, Step
    from pgflow_migrate.audit.refusal import findings_from_error
    from pgflow_migrate.audit.run import run_audit, survey
    from pgflow_migrate.audit.script import compose
else:
    __getattr__ = lazily.names(
        __name__,
        {
            "codes": ("CODES", "Code"),
            "findings": ("AuditReport", "Finding", "LostMessages", "Severity"),
            "outlook": ("Outlook", "QueueHealth", "Step"),
            "refusal": ("findings_from_error",),
            "run": ("run_audit", "survey"),
            "script": ("compose",),
        },
    )

__all__ = [
    "CODES",
    "AuditReport",
    "Code",
    "Finding",
    "LostMessages",
    "Outlook",
    "QueueHealth",
    "Severity",
    "Step",
    "compose",
    "findings_from_error",
    "run_audit",
    "survey",
]
