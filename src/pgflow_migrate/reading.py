"""What can end a long read-only look at a database, in words: audit and verification share it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import psycopg

from pgflow_migrate.errors import PgflowMigrateError


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Within it, what the server raises becomes one of the toolkit's errors.

    Args:
        what: what looks, such as ``audit``; it waits for a lock for 5 seconds at most.
    """
    try:
        yield
    except psycopg.errors.LockNotAvailable as error:
        raise PgflowMigrateError(
            f"The {what} waited 5 s for a lock: {_text(error)}.",
            "Another session holds it, an upgrade or a deletion perhaps. Repeat when it has ended.",
        ) from error
    except psycopg.errors.UndefinedTable as error:
        raise PgflowMigrateError(
            f"A table went away while the {what} read it: {_text(error)}.",
            "A flow was deleted, perhaps. Repeat it.",
        ) from error
    except psycopg.Error as error:
        state = f" (SQLSTATE {error.sqlstate})" if error.sqlstate else ""
        raise PgflowMigrateError(
            f"The server ended the {what}: {_text(error)}{state}.", "Nothing was changed; repeat it."
        ) from error


def _text(error: psycopg.Error) -> str:
    return " ".join((error.diag.message_primary or str(error)).split()).rstrip(".")
