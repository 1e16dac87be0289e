"""How long it takes, roughly: what docs/upgrade.md has measured, times the tasks that statistics know of."""

from __future__ import annotations

from typing import Literal

import psycopg
from psycopg.rows import tuple_row

from pgflow_migrate import database

Work = Literal["upgrade", "audit", "verify"]

SECONDS_PER_MILLION = {"upgrade": 10.0, "audit": 3.0, "verify": 5.0}  # of verify, tried with 300,000 tasks
_WORTH_IT = 1.0  # second; what is over before one has read it needs no estimate

# Catalogues only, which nobody's lock on a table holds up.
_TASKS = """
select c.reltuples::float8, exists (
    select from pg_catalog.pg_attribute a
    where a.attrelid = c.oid and a.attname = 'queue_name' and not a.attisdropped
  )
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = 'pgflow' and c.relname = 'step_tasks'
"""


def seconds(dsn: str, work: Work) -> float | None:
    """What the work takes on two cores; None when it is over at once, or nobody knows.

    Args:
        dsn: a connection string in any spelling.
        work: what is to be done.

    Raises:
        PgflowMigrateError: no connection.
    """
    with database.connect(dsn, read_only=True, autocommit=True) as connection:
        try:
            rows = connection.cursor(row_factory=tuple_row).execute(_TASKS).fetchall()
        except psycopg.Error:
            return None  # whoever does the work says why
    # After queue identity an upgrade rewrites nothing, and an audit reads nothing.
    if not rows or (rows[0][1] and work != "verify"):
        return None
    expected = float(rows[0][0]) / 1_000_000 * SECONDS_PER_MILLION[work]
    return expected if expected >= _WORTH_IT else None
