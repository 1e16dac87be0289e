"""What a pgflow database finds around it: PGMQ, and stand-ins for the parts of Supabase that pgflow calls."""

from __future__ import annotations

from typing import Any, Literal

import psycopg
from psycopg import sql

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.servers import extensions

How = Literal["extension", "sql"]

_Connection = psycopg.Connection[Any]


def pgmq_as_extension(connection: _Connection) -> bool:
    """Whether ``create extension pgmq`` works on this server.

    Args:
        connection: to any of its databases.
    """
    return _available(connection, "pgmq") is not None


def install_pgmq(connection: _Connection, how: How | None = None) -> None:
    """Install PGMQ in a database, in the connection's transaction.

    Args:
        connection: an open connection to the database.
        how: ``"extension"``: by ``create extension``, in the server's default version; ``"sql"``: by running
            the script that the ``pgmq`` package carries, which leaves no extension; None: as an extension
            where the server has it.

    Raises:
        PgflowMigrateError: the server has no such extension, or the ``pgmq`` package is not installed.
    """
    available = pgmq_as_extension(connection)
    if how == "extension" and not available:
        raise PgflowMigrateError("This server has no extension pgmq.", "Install PGMQ as SQL instead.")
    if how != "sql" and available:
        connection.execute("create extension pgmq")
        return
    bundled = extensions.pgmq()
    if bundled is None:
        raise PgflowMigrateError(
            "PGMQ's SQL is not installed.", "Install it: pip install 'pgflow-migrate[embedded]'"
        )
    _script(connection, bundled.script)


def install_surroundings(connection: _Connection) -> None:
    """Install the stand-ins for Supabase in a database: roles, realtime, pg_cron, pg_net, Vault.

    Where the server is ours and the role its superuser, the last three are extensions, so that SQL written
    for Supabase, which says ``create extension if not exists pg_cron``, runs unchanged. Elsewhere they are
    plain schemas; a real pg_cron is never used, as it works in one database of a server only and would run
    the jobs.

    Args:
        connection: an open connection to the database; all is done in its transaction.

    Raises:
        PgflowMigrateError: the roles do not exist and the connection's role may not create them.
    """
    try:
        _script(connection, extensions.stand_in_sql("roles"))
    except psycopg.errors.InsufficientPrivilege as error:
        raise PgflowMigrateError(
            f'Role "{connection.info.user}" may not create the roles anon, authenticated and service_role.',
            "Create them first, or connect as a superuser.",
        ) from error
    for name in ("extensions_schema", "realtime"):
        _script(connection, extensions.stand_in_sql(name))
    superuser = connection.info.parameter_status("is_superuser") == "on"
    for extension in extensions.stand_ins():
        if superuser and _available(connection, extension.name) == extension.comment:
            place = sql.SQL("" if extension.schema else " with schema extensions")
            connection.execute(sql.SQL("create extension {}{}").format(sql.Identifier(extension.name), place))
        else:
            _script(connection, extension.script)


def _available(connection: _Connection, name: str) -> str | None:
    """The comment of an extension that the server can create; None when it cannot."""
    with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        row = cursor.execute(
            "select coalesce(comment, '') from pg_catalog.pg_available_extensions where name = %s", [name]
        ).fetchone()
    return row[0] if row else None


def _script(connection: _Connection, script: str) -> None:
    # As bytes: a script has no parameters, and psycopg takes only literals as str.
    connection.execute(script.encode())
