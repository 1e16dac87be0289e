"""The first call of a worker: does this database know queue identity, and does it know this flow as we do?

Nothing is registered and no message is read before it has succeeded.
"""

from __future__ import annotations

import psycopg

from pgflow_migrate.database import Connection
from pgflow_migrate.errors import BlockedError, PgflowMigrateError
from pgflow_migrate.worker import calls
from pgflow_migrate.worker.calls import Compilation
from pgflow_migrate.worker.flow import Flow
from pgflow_migrate.worker.retries import PASSING, describe


class HandshakeError(BlockedError):
    """Database and worker, or their definitions of the flow, do not go together; the worker did not start."""

    def __init__(self, message: str, remedy: str = "", details: tuple[str, ...] = ()) -> None:
        super().__init__(message, remedy)
        self.details = details


class PausedError(BlockedError):
    """The worker's function was paused by a fatal batch, and nobody has resumed it yet."""


def shake_hands(connection: Connection, flow: Flow) -> Compilation:
    """Have the flow compiled, or compared with what the database has of it.

    Returns:
        with a status other than ``mismatch``.

    Raises:
        HandshakeError: the database is of another release or wants more than this worker can do, the stored
            flow is another one, or its queue cannot be had.
        PgflowMigrateError: it could not be tried.
        psycopg.Error: an error that passes by itself.
    """
    try:
        compilation = calls.ensure_flow_compiled(connection, flow.slug, flow.shape())
    except psycopg.Error as error:
        refused = _refusal(error, flow)
        if refused is None:
            raise
        raise refused from error
    if compilation.status == "mismatch":
        raise HandshakeError(
            f'The database has another definition of flow "{flow.slug}".',
            "Deploy the code that it was compiled from; or give the changed flow a new slug; or, if its runs"
            " may be lost, delete it with pgflow.delete_flow_and_data.",
            compilation.differences,
        )
    return compilation


def refuse_paused(connection: Connection, function_name: str) -> None:
    """Raise when the function is paused: its worker would stop at the same messages again.

    Raises:
        PausedError: it is; with the reason, and the statement that lifts it.
    """
    pause = calls.pause_of(connection, function_name)
    if pause is not None:
        raise PausedError(
            f'Worker function "{function_name}" is paused since {pause}{"" if pause.endswith(".") else "."}',
            f"When that is mended: {resume_statement(function_name)}",
        )


def resume_statement(function_name: str) -> str:
    """The statement that lets a paused function start again."""
    literal = function_name.replace("'", "''")
    return f"select pgflow.resume_worker_function('{literal}');"


def _refusal(error: psycopg.Error, flow: Flow) -> PgflowMigrateError | None:
    """What an error of the handshake means; None when it passes by itself."""
    # With a context it is a function further down that does not exist, not the one that we call.
    if isinstance(error, (psycopg.errors.UndefinedFunction, psycopg.errors.InvalidSchemaName)) and not (
        error.diag.context
    ):
        return HandshakeError(
            "This database's pgflow has no queue identity, which this worker needs.",
            "Upgrade the database with pgflow-migrate upgrade; till then run the workers of its own release.",
        )
    if error.sqlstate == "PF002":
        return HandshakeError(
            f"The database refuses this worker: {error.diag.message_primary}.",
            "Upgrade pgflow-migrate to the version that the database was upgraded with.",
        )
    refused_state = isinstance(error, psycopg.errors.ObjectNotInPrerequisiteState)
    if isinstance(error, PASSING) and not refused_state:
        return None
    kind = (
        HandshakeError if refused_state or isinstance(error, psycopg.IntegrityError) else PgflowMigrateError
    )
    hint = " ".join((error.diag.message_hint or "").split()) or _remedy(error)
    return kind(f'Flow "{flow.slug}" could not be compiled: {describe(error)}.', hint)


def _remedy(error: psycopg.Error) -> str:
    """What to do about an error that PostgreSQL has no hint for."""
    if error.diag.constraint_name == "flows_slug_case_insensitive_key":
        return "There is a flow whose slug differs in case only: spell it as pgflow.flows does."
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return (
            "pgflow-migrate docs worker lists a worker's rights; a new flow is compiled by the owner of"
            " schema pgflow."
        )
    return ""
