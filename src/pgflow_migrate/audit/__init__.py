"""What stands in the way of the upgrade: as a read-only report, and from a refused upgrade."""

from pgflow_migrate.audit.findings import AuditReport, Finding, Severity
from pgflow_migrate.audit.refusal import findings_from_error

__all__ = ["AuditReport", "Finding", "Severity", "findings_from_error"]
