"""Running the audit: one read-only transaction on one snapshot."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from datetime import datetime, timezone
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import dict_row

from pgflow_migrate import database, reading
from pgflow_migrate.audit import script
from pgflow_migrate.audit.findings import AuditReport, Finding
from pgflow_migrate.audit.lost import lost_messages
from pgflow_migrate.audit.outlook import Outlook, look

# The time as text, because psycopg reads timestamps in one DateStyle only.
_FACTS = """
select pg_catalog.current_database()::text as database,
  pg_catalog.split_part(pg_catalog.current_setting('server_version'), ' ', 1) as server,
  pg_catalog.to_char(pg_catalog.now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') as taken_at
"""


def run_audit(
    target: str | psycopg.Connection[Any], *, stock_prune_md5s: Collection[str] = ()
) -> AuditReport:
    """Audit a database; changes nothing.

    Args:
        target: a connection string in any spelling, or a connection. A connection that is in a transaction is
            used as it is: the report is then of that transaction, whatever its isolation.
        stock_prune_md5s: md5 sums of more bodies of the pruning helper that count as the documented one.

    Raises:
        PgflowMigrateError: no connection, or the server ended the audit (a timeout, a lock held for long).
    """
    if isinstance(target, str):
        with database.connect(target) as connection:
            return run_audit(connection, stock_prune_md5s=stock_prune_md5s)
    block = script.findings_block(stock_prune_md5s)
    with reading.explained("audit"), snapshot(target), target.cursor(row_factory=dict_row) as cursor:
        cursor.execute(block.encode())
        rows = cursor.execute(script.FETCH.encode()).fetchall()
        cursor.execute(script.CLOSE.encode())
        facts = cursor.execute(_FACTS.encode()).fetchall()[0]
        findings = tuple(Finding.from_row(row) for row in rows)
        # Of what is no release the columns need not be there.
        known = all(finding.code != "release-unexpected" for finding in findings)
        lost = lost_messages(target) if known else None
    return AuditReport(
        findings=findings,
        database=facts["database"],
        server=facts["server"],
        taken_at=datetime.fromisoformat(facts["taken_at"]).replace(tzinfo=timezone.utc),
        lost=lost,
    )


def survey(
    target: str | psycopg.Connection[Any], *, stock_prune_md5s: Collection[str] = ()
) -> tuple[AuditReport, Outlook]:
    """Audit a database, and read of the same snapshot how its queues are and what the upgrade would do.

    Arguments and errors as for :func:`run_audit`.
    """
    if isinstance(target, str):
        with database.connect(target) as connection:
            return survey(connection, stock_prune_md5s=stock_prune_md5s)
    with reading.explained("audit"), snapshot(target):
        return run_audit(target, stock_prune_md5s=stock_prune_md5s), look(target)


@contextlib.contextmanager
def snapshot(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Within it, the script's own read-only transaction; or the one that the caller is in."""
    if connection.info.transaction_status != TransactionStatus.IDLE:
        yield
        return
    autocommit = connection.autocommit
    # So that psycopg does not begin a transaction before ours.
    connection.autocommit = True
    try:
        connection.execute(script.BEGIN.encode())
        connection.execute(script.SETTINGS.encode())
        yield
    finally:
        # A lost connection has rolled back by itself.
        with contextlib.suppress(psycopg.Error):
            connection.execute(script.ROLLBACK.encode())
            connection.autocommit = autocommit
