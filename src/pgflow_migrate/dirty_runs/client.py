"""The calls of protocol 2 as an executor makes them: one task, one message, typed answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row

from pgflow_migrate import database
from pgflow_migrate.dirty_runs.outcomes import (
    Accepted,
    Answer,
    Claimed,
    Conflict,
    Kind,
    NotClaimed,
    Outcome,
    Refused,
)

Connection = psycopg.Connection[Any]

CLAIM_PATIENCE = 250
"""Milliseconds that a claim waits for the locks of its run. Those of the protocol's own calls are shorter."""


@dataclass(frozen=True)
class Reservation:
    """A message that was read from a queue, and the task that it speaks of. Others may have it, too.

    Attributes:
        queue_name: the queue.
        msg_id: the message.
        run_id, step_slug, task_index: the address in its body.
    """

    queue_name: str
    msg_id: int
    run_id: UUID
    step_slug: str
    task_index: int


def reserve(connection: Connection, queue_name: str, seconds: int) -> Reservation | None:
    """Read at most one message, and hide it from others for a while.

    Args:
        connection: in autocommit mode, so that others see at once that it is hidden.
        queue_name: the queue.
        seconds: for which it is invisible.

    Returns:
        None when there is no message, or no task in it.

    Raises:
        psycopg.Error: such as 42P01, there is no such queue.
    """
    row = (
        connection.cursor(row_factory=tuple_row)
        .execute(
            # Taken apart by the server: a body of anybody's may be nested deeper than Python reads.
            "select msg_id, message ->> 'run_id', message ->> 'step_slug', message ->> 'task_index'"
            " from pgmq.read(%s, %s, 1)",
            (queue_name, seconds),
        )
        .fetchone()
    )
    if row is None or None in row:
        return None
    msg_id, run_id, step_slug, task_index = row
    try:
        address = UUID(run_id), step_slug, int(task_index)
    except ValueError:
        return None
    # Beyond integer there is no task, nor a function to ask.
    return Reservation(queue_name, msg_id, *address) if 0 <= address[2] < 2**31 else None


def claim(
    connection: Connection, reservation: Reservation, worker_id: UUID, token: UUID
) -> Claimed | NotClaimed:
    """Claim the task of a reservation. With the same token it may be asked again when an answer was lost.

    A run that somebody else has locked for longer than :data:`CLAIM_PATIENCE` is passed over: its message
    comes back when its reservation is over.

    Args:
        connection: in autocommit mode.
        reservation: what was read.
        worker_id: who claims.
        token: the claim's id.

    Raises:
        psycopg.Error: the call failed; whether it was committed is not known.
    """
    try:
        answer = _call(
            connection,
            "select pgflow.claim_task_v2(%s, %s, %s, %s, array[%s::bigint], %s, %s)"
            # Before the call, and for this statement's transaction alone.
            " from (select set_config('lock_timeout', %s, true) as patience offset 0) bounded"
            " where bounded.patience is not null",
            reservation.run_id,
            reservation.step_slug,
            reservation.task_index,
            reservation.queue_name,
            reservation.msg_id,
            worker_id,
            token,
            str(CLAIM_PATIENCE),
        )
    except psycopg.errors.LockNotAvailable:
        return NotClaimed("busy", "locked")
    if answer["outcome"] != "claimed":
        return NotClaimed(answer["outcome"], answer.get("reason"))
    return Claimed(
        token=UUID(answer["claim_id"]),
        run_id=UUID(answer["run_id"]),
        step_slug=answer["step_slug"],
        task_index=answer["task_index"],
        queue_name=answer["queue_name"],
        msg_id=answer["msg_id"],
        input=answer["input"],
        flow_input=answer["flow_input"],
        replayed=answer["replayed"],
    )


def settle(connection: Connection, token: UUID, outcome: Outcome) -> Answer:
    """Report an outcome, once.

    Args:
        connection: whose caller commits.
        token: the claim's id.
        outcome: what its handler came to.

    Raises:
        psycopg.Error: the call failed; whether it was committed is not known.
    """
    if outcome.kind is Kind.SUCCEEDED:
        answer = _call(
            connection, "select pgflow.complete_claim_v2(%s, %s::jsonb)", token, outcome.canonical.text
        )
    else:
        answer = _call(connection, "select pgflow.fail_claim_v2(%s, %s)", token, outcome.error)
    if answer["outcome"] == "accepted":
        return Accepted(answer["disposition"], answer["replayed"])
    if answer["outcome"] == "conflict":
        return Conflict(answer["settled_kind"], answer["disposition"])
    return Refused(answer["outcome"], answer["reason"])


class Sender:
    """Reports over a connection of its own for each attempt, so that one that hangs holds up no other.

    Args:
        dsn: a connection string in any spelling.
        seconds: after which the server ends a statement, so that an abandoned attempt does not wait for ever.
    """

    def __init__(self, dsn: str, seconds: int) -> None:
        self._dsn = dsn
        self._milliseconds = str(seconds * 1000)

    def __call__(self, token: UUID, outcome: Outcome) -> Answer:
        """One attempt: report and commit.

        Raises:
            psycopg.Error, PgflowMigrateError: it failed; whether it was committed is not known.
        """
        with database.connect(self._dsn) as connection:
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            connection.execute("select set_config('statement_timeout', %s, true)", (self._milliseconds,))
            answer = settle(connection, token, outcome)
            connection.commit()
            return answer


def _call(connection: Connection, query: str, *values: object) -> Mapping[str, Any]:
    row = connection.cursor(row_factory=tuple_row).execute(query.encode(), values).fetchone()
    if row is None or not isinstance(row[0], dict):
        raise TypeError(f"no JSON object came back: {row!r}")
    answer: dict[str, Any] = row[0]
    return answer
