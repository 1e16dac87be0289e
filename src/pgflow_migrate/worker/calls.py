"""Every statement that a worker sends, as a function of a connection.

Arguments of pgflow's and PGMQ's functions go by name and with their type, so that another release's function
of the same name is not called by accident.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg.types.json import Jsonb

from pgflow_migrate.database import Connection
from pgflow_migrate.worker import claims
from pgflow_migrate.worker.claims import Claimed, ClaimedTask, Fatal

# What this worker can do; the database refuses workers that lack what it needs.
CAPABILITIES = {"queueIdentity": True}


@dataclass(frozen=True)
class Compilation:
    """What became of a flow's definition: ``compiled``, ``verified``, ``recompiled`` or ``mismatch``."""

    status: str
    differences: tuple[str, ...]
    queue_name: str


@dataclass(frozen=True)
class Heartbeat:
    """Whether the worker is still registered, and whether somebody wants it to leave."""

    registered: bool
    deprecated: bool


def ensure_flow_compiled(connection: Connection, flow_slug: str, shape: dict[str, Any]) -> Compilation:
    """Compile the flow, or compare it with the database's."""
    (answer,) = _row(
        connection,
        "select pgflow.ensure_flow_compiled(flow_slug => %s::text, shape => %s::jsonb,"
        " capabilities => %s::jsonb)",
        (flow_slug, Jsonb(shape), Jsonb(CAPABILITIES)),
    )
    return Compilation(answer["status"], tuple(answer["differences"]), answer["queueName"])


def pause_of(connection: Connection, function_name: str) -> str | None:
    """Why the function is paused, with since when; None when it is not."""
    row = connection.execute(
        "select coalesce(to_char(paused_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') || ' UTC',"
        " paused_at::text) || ': ' || pause_reason"  # to_char() of infinity is NULL
        " from pgflow.worker_functions where function_name = %s::text and paused_at is not null",
        (function_name,),
    ).fetchone()
    return row[0] if row else None


def register(connection: Connection, queue_name: str, worker_id: str, function_name: str) -> None:
    """Make the worker known; a second time, as after a lost answer, changes nothing."""
    connection.execute(
        "select pgflow.track_worker_function(function_name => %s::text, start_mode => 'process')",
        (function_name,),
    )
    connection.execute(
        "insert into pgflow.workers (queue_name, worker_id, function_name)"
        " values (%s::text, %s::uuid, %s::text) on conflict (worker_id) do nothing",
        (queue_name, worker_id, function_name),
    )


def heartbeat(connection: Connection, worker_id: str) -> Heartbeat:
    """Say that the worker lives."""
    row = connection.execute(
        "update pgflow.workers set last_heartbeat_at = clock_timestamp() where worker_id = %s::uuid"
        " returning deprecated_at is not null",
        (worker_id,),
    ).fetchone()
    return Heartbeat(registered=row is not None, deprecated=bool(row and row[0]))


def mark_worker_stopped(connection: Connection, worker_id: str) -> None:
    """Say that the worker has left."""
    connection.execute("select pgflow.mark_worker_stopped(worker_id => %s::uuid)", (worker_id,))


def read_messages(
    connection: Connection,
    queue_name: str,
    *,
    vt: int,
    qty: int,
    max_poll_seconds: int,
    poll_interval_ms: int,
) -> tuple[str, ...]:
    """Wait for messages and hide them for ``vt`` seconds; their ids in ascending order."""
    rows = connection.execute(
        "select message.msg_id::text from pgmq.read_with_poll(queue_name => %s::text, vt => %s::integer,"
        " qty => %s::integer, max_poll_seconds => %s::integer, poll_interval_ms => %s::integer)"
        " message order by message.msg_id",
        (queue_name, vt, qty, max_poll_seconds, poll_interval_ms),
    ).fetchall()
    return tuple(msg_id for (msg_id,) in rows)


def release_messages(connection: Connection, queue_name: str, msg_ids: Sequence[str]) -> None:
    """Make messages that were read and not claimed visible again."""
    connection.execute(
        "select from pgflow.set_vt_batch(queue_name => %s::text, msg_ids => %s::bigint[],"
        " vt_offsets => array_fill(0, array[%s::integer]))",
        (queue_name, list(msg_ids), len(msg_ids)),
    )


def claim_tasks(
    connection: Connection, queue_name: str, flow_slug: str, msg_ids: Sequence[str], worker_id: str
) -> Claimed | Fatal:
    """Claim the tasks of messages that were read."""
    (answer,) = _row(
        connection,
        "select pgflow.claim_tasks(queue_name => %s::text, flow_slug => %s::text, msg_ids => %s::bigint[],"
        " worker_id => %s::uuid)",
        (queue_name, flow_slug, list(msg_ids), worker_id),
    )
    return claims.parse(answer)


def flow_input(connection: Connection, run_id: str) -> Any:
    """The input that a run was started with."""
    (value,) = _row(connection, "select input from pgflow.runs where run_id = %s::uuid", (run_id,))
    return value


def complete_task(connection: Connection, task: ClaimedTask, output: str) -> str | None:
    """Report success; ``output`` is a JSON text. A second time changes nothing.

    Returns:
        the status that the task has then; None when there is no such task any more.
    """
    row = connection.execute(
        "select completed.status from pgflow.complete_task(run_id => %s::uuid, step_slug => %s::text,"
        " task_index => %s::integer, output => %s::jsonb) completed",
        (task.run_id, task.step_slug, task.task_index, output),
    ).fetchone()
    return row[0] if row else None


def fail_task(connection: Connection, task: ClaimedTask, message: str, worker_id: str) -> None:
    """Report a failed attempt, if it is still the one that is under way.

    When it is not, it has been given up as stalled, or this very report got through and only the answer was
    lost: then it would fail the next attempt, this worker's or another's, or put it off.
    """
    connection.execute(
        "select from pgflow.step_tasks task cross join lateral pgflow.fail_task(run_id => task.run_id,"
        " step_slug => task.step_slug, task_index => task.task_index, error_message => %s::text) failed"
        " where task.run_id = %s::uuid and task.step_slug = %s::text and task.task_index = %s::integer"
        " and task.status = 'started' and task.last_worker_id = %s::uuid"
        " and task.attempts_count = %s::integer",
        (message, task.run_id, task.step_slug, task.task_index, worker_id, task.attempt),
    )


def _row(connection: Connection, query: str, parameters: Sequence[Any]) -> tuple[Any, ...]:
    row = connection.execute(query.encode(), parameters).fetchone()
    assert row is not None  # noqa: S101 - a function call without from always has its row
    return row
