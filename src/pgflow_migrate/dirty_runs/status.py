"""What runs of protocol 2 wait for: work rows, errors, claims. Read-only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

import psycopg
from psycopg import sql
from psycopg.rows import class_row

from pgflow_migrate import database, reading
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.times import bounded

__all__ = ["Claim", "Status", "Work", "status"]

_INSTALLED = "select to_regclass('pgflow.run_work') is not null"

# The worst first. The order of the states is the order in which a person looks.
_WORK: Final = """
select
  work.run_id, run.flow_slug, run.status, work.state, work.requested_generation, work.processed_generation,
  {requested_at} as requested_at, work.failure_count, work.last_error_sqlstate, work.last_error,
  {next_attempt_at} as next_attempt_at, {attention_at} as attention_at, work.attention_reason
from pgflow.run_work work
join pgflow.runs run on run.run_id = work.run_id
where %(all)s or run.status = 'started' or work.state <> 'clean'
order by
  array_position(array['attention', 'retry_wait', 'pending', 'clean'], work.state),
  work.requested_at, work.run_id
limit %(limit)s
"""

_CLAIMS: Final = """
select
  claim.claim_id, claim.run_id, claim.step_slug, claim.task_index, claim.claim_number, claim.queue_name,
  claim.message_id::text as msg_id, claim.worker_id, {claimed_at} as claimed_at,
  {lease_expires_at} as lease_expires_at, claim.state, claim.revoked_reason, claim.disposition,
  claim.state = 'active' and claim.lease_expires_at <= clock_timestamp() as lease_is_over
from pgflow.task_claims claim
where claim.run_id = any (%s)
order by claim.run_id, claim.step_slug, claim.task_index, claim.claim_number
"""


@dataclass(frozen=True)
class Work:
    """The work row of a run. Times are in UTC, and one beyond Python's first or last is that."""

    run_id: UUID
    flow_slug: str
    status: str
    state: str
    requested_generation: int
    processed_generation: int
    requested_at: datetime | None
    failure_count: int
    last_error_sqlstate: str | None
    last_error: str | None
    next_attempt_at: datetime | None
    attention_at: datetime | None
    attention_reason: str | None


@dataclass(frozen=True)
class Claim:
    """A claim; ``msg_id`` as a decimal string, times as in :class:`Work`."""

    claim_id: UUID
    run_id: UUID
    step_slug: str
    task_index: int
    claim_number: int
    queue_name: str
    msg_id: str
    worker_id: UUID
    claimed_at: datetime
    lease_expires_at: datetime
    state: str
    revoked_reason: str | None
    disposition: str | None
    lease_is_over: bool


@dataclass(frozen=True)
class Status:
    """Runs of protocol 2 and their claims.

    Attributes:
        work: the work rows, the worst first.
        claims: the claims of these runs.
        cut: whether there are more than were asked for.
    """

    work: tuple[Work, ...]
    claims: tuple[Claim, ...]
    cut: bool

    @property
    def attention(self) -> int:
        """How many of the runs wait for a person."""
        return sum(work.state == "attention" for work in self.work)


def _work() -> sql.Composed:
    return sql.SQL(_WORK).format(
        requested_at=bounded("work", "requested_at"),
        next_attempt_at=bounded("work", "next_attempt_at"),
        attention_at=bounded("work", "attention_at"),
    )


def _claims() -> sql.Composed:
    return sql.SQL(_CLAIMS).format(
        claimed_at=bounded("claim", "claimed_at"), lease_expires_at=bounded("claim", "lease_expires_at")
    )


def refuse_without_protocol(connection: psycopg.Connection[Any]) -> None:
    """Raise unless the database has protocol 2.

    Raises:
        PgflowMigrateError: it has not.
    """
    if connection.execute(_INSTALLED).fetchone() != (True,):
        raise PgflowMigrateError(
            "This database has no protocol 2: the revision dirty_runs is not applied.",
            "Upgrade it: pgflow-migrate upgrade",
        )


def status(dsn: str, *, all_runs: bool = False, limit: int = 100) -> Status:
    """Look at the runs of protocol 2, in one snapshot; changes nothing.

    Args:
        dsn: a connection string in any spelling.
        all_runs: also those that are over and clean.
        limit: of runs.

    Raises:
        PgflowMigrateError: it could not look, or there is no protocol 2 in this database.
    """
    with database.connect(dsn, read_only=True) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with reading.explained("look at protocol 2"):
            refuse_without_protocol(connection)
            # In binary, because psycopg cannot read every DateStyle that a server may have.
            connection.execute("set local timezone to 'UTC'")
            work = (
                connection.cursor(row_factory=class_row(Work), binary=True)
                .execute(_work(), {"all": all_runs, "limit": limit + 1})
                .fetchall()
            )
            shown = work[:limit]
            claims = (
                connection.cursor(row_factory=class_row(Claim), binary=True)
                .execute(_claims(), ([row.run_id for row in shown],))
                .fetchall()
            )
    return Status(tuple(shown), tuple(claims), cut=len(work) > limit)
