"""The findings that a refused upgrade carries in its error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from pgflow_migrate.audit.findings import Finding

if TYPE_CHECKING:
    import psycopg

SQLSTATE = "PF001"
"""What the preflight raises with (alembic/sql/queue_identity/preflight_raise.sql)."""


def findings_from_error(error: psycopg.Error) -> tuple[Finding, ...]:
    """The blocking findings that a refused upgrade's error carries.

    Args:
        error: what the server said, such as to ``alembic upgrade`` or to a script in psql.

    Returns:
        the findings in its detail, a JSON object a line; none unless it is a refusal.
    """
    if error.sqlstate != SQLSTATE:
        return ()
    # Not splitlines(): JSON leaves U+2028 and its like as they are.
    lines = (error.diag.message_detail or "").split("\n")
    return tuple(Finding.from_row(json.loads(line)) for line in lines if line)
