"""Connecting, and what is known about the server and the role once connected."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg

from pgflow_migrate.connection_errors import explain
from pgflow_migrate.dsn import normalise_dsn, parse, resolve_dsn

if TYPE_CHECKING:
    import sqlalchemy as sa

__all__ = ["Connection", "ServerInfo", "connect", "engine", "normalise_dsn", "resolve_dsn", "server_info"]

APPLICATION_NAME = "pgflow-migrate"
CONNECT_TIMEOUT = 10  # seconds, for each host; the connection string and PGCONNECT_TIMEOUT win
PIN_SEARCH_PATH = "select pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)"
"""What a transaction does first. Names then mean what they say: an operator, type or function in a schema of
the role's search_path, one that fits better than pg_catalog's, must not run with our rights."""
POOLER_PORT = 6543  # where Supabase's transaction pooler listens

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(dsn: str, *, autocommit: bool = False, read_only: bool | None = None) -> Connection:
    """Open a connection that keeps nothing in the session, so that it works through a transaction pooler.

    Args:
        dsn: a connection string in any spelling.
        autocommit: as psycopg's.
        read_only: the access mode of every transaction; None leaves the server's default.

    Raises:
        PgflowMigrateError: the string cannot be read, or the server cannot be reached or refuses us; without
            any password.
    """
    parameters = parse(dsn)
    # An encoding of its own, because a database in SQL_ASCII would otherwise hand out bytes.
    settings: dict[str, Any] = {"fallback_application_name": APPLICATION_NAME, "client_encoding": "UTF8"}
    if "connect_timeout" not in parameters and not os.environ.get("PGCONNECT_TIMEOUT"):
        settings["connect_timeout"] = CONNECT_TIMEOUT
    try:
        connection: Connection = psycopg.connect(
            **(parameters | settings), autocommit=autocommit, prepare_threshold=None
        )
    except psycopg.Error as error:
        failure = explain(error, parameters)
    else:
        connection.read_only = read_only
        return connection
    raise failure  # out here, so that it does not carry psycopg's error, text and socket, along


def engine(dsn: str) -> sa.Engine:
    """A SQLAlchemy engine whose transactions are READ COMMITTED, whatever the server's default.

    libpq parses the string; SQLAlchemy never sees it. READ COMMITTED because what is read under a lock has to
    be what was committed while we waited for it. Whether they may write is left to the server's default: who
    has set default_transaction_read_only has meant it.
    """
    import sqlalchemy as sa  # here, because the audit does without and starts quicker

    def connected() -> Connection:
        connection = connect(dsn)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        # SQLAlchemy asks some questions of its own, in the transaction that this begins.
        connection.execute(PIN_SEARCH_PATH)
        return connection

    return sa.create_engine(
        "postgresql+psycopg://",
        creator=connected,
        poolclass=sa.NullPool,
        pool_reset_on_return=None,  # it is closed, and a lost connection's rollback would log a traceback
        use_native_hstore=False,
    )


@dataclass(frozen=True)
class ServerInfo:
    """What there is to know about the other end of a connection.

    Attributes:
        version: as the server spells it, such as ``18.1``.
        database: name of the database.
        role: the role whose rights count (``current_user``).
        superuser: whether that role is one.
        standby: whether the server is a read-only standby.
        pooler: why a connection pooler is suspected in between, or None.
        pgflow_owner: the role that owns schema pgflow, or None without that schema.
        owns_pgflow: whether ``role`` has the rights of ``pgflow_owner``.
    """

    version: str
    database: str
    role: str
    superuser: bool
    standby: bool
    pooler: str | None
    pgflow_owner: str | None
    owns_pgflow: bool


def server_info(connection: psycopg.Connection[Any]) -> ServerInfo:
    """Ask the server about itself and about our rights; reads catalogues only."""
    cursor = connection.cursor(row_factory=psycopg.rows.tuple_row)
    row = cursor.execute(
        """
        select current_setting('server_version'), current_database(), current_user::text,
          (select r.rolsuper from pg_catalog.pg_roles r where r.rolname = current_user),
          pg_catalog.pg_is_in_recovery(), pg_catalog.pg_backend_pid(),
          n.owner::text, coalesce(pg_catalog.pg_has_role(n.oid, 'usage'), false)
        from (select 1) as one
        left join (
          select s.nspowner as oid, pg_catalog.pg_get_userbyid(s.nspowner) as owner
          from pg_catalog.pg_namespace s where s.nspname = 'pgflow'
        ) as n on true
        """
    ).fetchone()
    assert row is not None  # noqa: S101 - a select without where always has its row
    version, database, role, superuser, standby, backend, owner, owns = row
    return ServerInfo(
        version=version.split()[0],
        database=database,
        role=role,
        superuser=superuser,
        standby=standby,
        pooler=_pooler(connection, backend),
        pgflow_owner=owner,
        owns_pgflow=owns,
    )


def _pooler(connection: psycopg.Connection[Any], backend: int) -> str | None:
    if connection.info.backend_pid != backend:
        return "the server process is not the one that the connection was opened to"
    if connection.info.port == POOLER_PORT:
        return f"port {POOLER_PORT}"
    return None
