"""Whether an upgraded database keeps what its revision promises; read-only, at any time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgflow_migrate import lazily

if TYPE_CHECKING:
    from pgflow_migrate.verify.checks import CHECKS, Check
    from pgflow_migrate.verify.run import verify
    from pgflow_migrate.verify.violations import Looked, Verification, Violation
else:
    __getattr__ = lazily.names(
        __name__,
        {
            "checks": ("CHECKS", "Check"),
            "run": ("verify",),
            "violations": ("Looked", "Verification", "Violation"),
        },
    )

__all__ = [
    "CHECKS",
    "Check",
    "Looked",
    "Verification",
    "Violation",
    "verify",
]
