"""Dirty Runs: the bounded A → B protocol, as data, and what the two sides of it have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgflow_migrate import lazily

if TYPE_CHECKING:
    from pgflow_migrate.dirty_runs.client import Reservation, Sender, claim, reserve, settle
    from pgflow_migrate.dirty_runs.envelope import faults
    from pgflow_migrate.dirty_runs.executor import Executed, Executor, Handler
    from pgflow_migrate.dirty_runs.limits import LIMITS, Limit, limit
    from pgflow_migrate.dirty_runs.outcomes import (
        Accepted,
        Answer,
        Claimed,
        Conflict,
        Kind,
        NotClaimed,
        Outcome,
        Refused,
        Unconfirmed,
    )
    from pgflow_migrate.dirty_runs.reconciliation import reconcile
    from pgflow_migrate.dirty_runs.reporter import Report, Send
else:
    __getattr__ = lazily.names(
        __name__,
        {
            "client": ("Reservation", "Sender", "claim", "reserve", "settle"),
            "envelope": ("faults",),
            "executor": ("Executed", "Executor", "Handler"),
            "limits": ("LIMITS", "Limit", "limit"),
            "outcomes": (
                "Accepted",
                "Answer",
                "Claimed",
                "Conflict",
                "Kind",
                "NotClaimed",
                "Outcome",
                "Refused",
                "Unconfirmed",
            ),
            "reconciliation": ("reconcile",),
            "reporter": ("Report", "Send"),
        },
    )

__all__ = [
    "LIMITS",
    "Accepted",
    "Answer",
    "Claimed",
    "Conflict",
    "Executed",
    "Executor",
    "Handler",
    "Kind",
    "Limit",
    "NotClaimed",
    "Outcome",
    "Refused",
    "Report",
    "Reservation",
    "Send",
    "Sender",
    "Unconfirmed",
    "claim",
    "faults",
    "limit",
    "reconcile",
    "reserve",
    "settle",
]
