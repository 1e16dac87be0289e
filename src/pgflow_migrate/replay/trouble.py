"""What can end a replay on a server, in words."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg
import sqlalchemy as sa

from pgflow_migrate.errors import PgflowMigrateError


@contextlib.contextmanager
def explained(server: str = "the server") -> Iterator[None]:
    """Within it, what the server or the machine raises becomes one of the toolkit's errors.

    Args:
        server: its label, where it has one.
    """
    try:
        yield
    except (psycopg.Error, sa.exc.SQLAlchemyError) as error:
        raise _of_server(server, error) from error
    except OSError as error:
        what = error.strerror or str(error)
        where = "" if error.filename is None else f": {error.filename}"
        raise PgflowMigrateError(f"The replay on {server} could not go on: {what}{where}.") from error


def _of_server(server: str, error: Exception) -> PgflowMigrateError:
    # Alembic goes through SQLAlchemy, which wraps what psycopg says.
    cause = getattr(error, "orig", None) or error
    text, state = str(cause), ""
    if isinstance(cause, psycopg.Error):
        text = cause.diag.message_primary or text
        state = f" (SQLSTATE {cause.sqlstate})" if cause.sqlstate else ""
    text = " ".join(text.split()).rstrip(".")
    return PgflowMigrateError(f"The replay on {server} could not go on: {text}{state}.")
