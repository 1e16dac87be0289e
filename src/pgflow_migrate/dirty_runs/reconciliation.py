"""One chunk of reconciliation from outside: one call, one transaction."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import psycopg

from pgflow_migrate import database
from pgflow_migrate.dirty_runs.status import refuse_without_protocol
from pgflow_migrate.errors import PgflowMigrateError


def reconcile(dsn: str, run_id: UUID | None = None) -> dict[str, Any]:
    """Reconcile a run by one chunk, and commit.

    Args:
        dsn: a connection string in any spelling.
        run_id: the run; None takes the first that is due and not locked.

    Returns:
        What ``pgflow.reconcile_one_run`` answers: ``outcome`` and what belongs to it. A chunk that failed is
        an outcome, too, and its record is committed.

    Raises:
        PgflowMigrateError: no connection, no protocol 2 in this database, or the server ended the call. Only
            of a lost connection it is not known whether the chunk was committed; repeating it does no harm.
    """
    try:
        with database.connect(dsn) as connection:
            # What is read under the run's lock has to be what was committed before it.
            connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
            refuse_without_protocol(connection)
            row = connection.execute("select pgflow.reconcile_one_run(%s)::text", (run_id,)).fetchone()
            connection.commit()
    except psycopg.Error as error:
        text = " ".join((error.diag.message_primary or str(error)).split()).rstrip(".")
        state = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
        raise PgflowMigrateError(
            f"The server ended the chunk: {text}{state}.", "It may be repeated: nothing is done twice."
        ) from error
    answer: dict[str, Any] = json.loads(row[0]) if row else {}
    return answer
