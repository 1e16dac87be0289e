"""A server that somebody else runs, reached by an administrator's connection string."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field

from psycopg.conninfo import conninfo_to_dict

from pgflow_migrate import database
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.servers.server import Server, ending_with

PREFIX = "pgflow_migrate_"
"""Begins the name of every database that we make on somebody else's server."""

OLDEST_VERSION = 15
"""The oldest major version of PostgreSQL that is supported."""


@dataclass(frozen=True)
class ExternalServer(Server):
    """A server with databases of others; it remembers ours, to drop them at the end."""

    made: dict[str, None] = field(default_factory=dict, compare=False)

    def create_database(self, name: str, template: str = "template0") -> str:
        """As :meth:`Server.create_database`."""
        self.made[name] = None
        return super().create_database(name, template)

    def drop_database(self, name: str) -> None:
        """As :meth:`Server.drop_database`."""
        super().drop_database(name)
        self.made.pop(name, None)

    def drop_databases(self) -> None:
        """Drop all that were made and are still there."""
        # On the stack each is dropped, also when another cannot be.
        with contextlib.ExitStack() as stack:
            for name in self.made:
                stack.callback(self.drop_database, name)


@contextlib.contextmanager
def reach(admin_dsn: str, label: str = "") -> Iterator[ExternalServer]:
    """Use a server; every database made on it is dropped at the end, whatever happened.

    Args:
        admin_dsn: key=value, or a postgresql:// URL, of a role that may create databases.
        label: what a person calls the server; by default its host and version.

    Raises:
        PgflowMigrateError: it does not answer, is too old, or the role may not create databases.
    """
    with database.connect(admin_dsn, autocommit=True) as connection:
        version = connection.info.server_version // 10000
        may_create = connection.execute(
            "select rolcreatedb or rolsuper from pg_catalog.pg_roles where rolname = current_user"
        ).fetchone()
        role = connection.info.user
    if version < OLDEST_VERSION:
        raise PgflowMigrateError(
            f"The server runs PostgreSQL {version}.", f"PostgreSQL {OLDEST_VERSION} or newer is needed."
        )
    if may_create != (True,):
        raise PgflowMigrateError(
            f'Role "{role}" may not create databases.', f'Give it the right: alter role "{role}" createdb'
        )
    host = conninfo_to_dict(admin_dsn).get("host") or "local"
    # Two processes may use one server at the same time.
    prefix = f"{PREFIX}{secrets.token_hex(4)}_"
    server = ExternalServer(label or f"{host}-{version}", admin_dsn, prefix)
    with ending_with(server.drop_databases):
        yield server
