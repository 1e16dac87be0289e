"""Taking a database through the chain of revisions, in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgflow_migrate import lazily

if TYPE_CHECKING:
    from pgflow_migrate.database import ServerInfo
    from pgflow_migrate.upgrade.activity import Queue, Timeout
    from pgflow_migrate.upgrade.ledger import Entry
    from pgflow_migrate.upgrade.paused import PausedFunction
    from pgflow_migrate.upgrade.progress import (
        Event,
        FileDone,
        FileStarted,
        Found,
        Listener,
        Note,
        RevisionApplied,
        RevisionStarted,
    )
    from pgflow_migrate.upgrade.run import Applied, Backfilled, UpgradeResult, upgrade
    from pgflow_migrate.upgrade.script import upgrade_script
    from pgflow_migrate.upgrade.session import AMONG_WORKERS, Fence
    from pgflow_migrate.upgrade.status import AuditSummary, Status, read_status
else:
    __getattr__ = lazily.names(
        __name__,
        {
            ".database": ("ServerInfo",),
            "activity": ("Queue", "Timeout"),
            "ledger": ("Entry",),
            "paused": ("PausedFunction",),
            "progress": (
                "Event",
                "FileDone",
                "FileStarted",
                "Found",
                "Listener",
                "Note",
                "RevisionApplied",
                "RevisionStarted",
            ),
            "run": ("Applied", "Backfilled", "UpgradeResult", "upgrade"),
            "script": ("upgrade_script",),
            "session": ("AMONG_WORKERS", "Fence"),
            "status": ("AuditSummary", "Status", "read_status"),
        },
    )

__all__ = [
    "AMONG_WORKERS",
    "Applied",
    "AuditSummary",
    "Backfilled",
    "Entry",
    "Event",
    "Fence",
    "FileDone",
    "FileStarted",
    "Found",
    "Listener",
    "Note",
    "PausedFunction",
    "Queue",
    "RevisionApplied",
    "RevisionStarted",
    "ServerInfo",
    "Status",
    "Timeout",
    "UpgradeResult",
    "read_status",
    "upgrade",
    "upgrade_script",
]
