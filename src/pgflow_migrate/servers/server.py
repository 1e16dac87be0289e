"""The small interface that every kind of server gives."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgflow_migrate import database
from pgflow_migrate.errors import PgflowMigrateError

_BUILT_IN_TEMPLATES = frozenset({"template0", "template1"})


@dataclass(frozen=True)
class Server:
    """A running server on which databases may be created.

    Attributes:
        label: what a person calls it, such as ``embedded-18``.
        admin_dsn: key=value connection string of a role that may create databases.
        prefix: put before each database's name, so that ours are recognised on a server with others.
        bin_dir: where psql, pg_dump and pgbench of the server's version are; None when not on this machine.
        log: the server's log file; None when not on this machine.
    """

    label: str
    admin_dsn: str
    prefix: str = ""
    bin_dir: Path | None = None
    log: Path | None = None

    def dsn(self, database: str) -> str:
        """The connection string of one of the databases made with :meth:`create_database`."""
        return make_conninfo(self.admin_dsn, dbname=self.prefix + database)

    def create_database(self, name: str, template: str = "template0") -> str:
        """Clone ``template``, PostgreSQL's own or one of ours, as ``name``; returns its connection string."""
        if template not in _BUILT_IN_TEMPLATES:
            template = self.prefix + template
        self._admin(
            # Copying the files is quicker than logging every page of the template.
            sql.SQL("create database {} template {} strategy file_copy").format(
                sql.Identifier(self.prefix + name), sql.Identifier(template)
            )
        )
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database, ending the sessions in it; no error when there is none."""
        self._admin(
            sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(self.prefix + name))
        )

    def _admin(self, statement: sql.Composed) -> None:
        with database.connect(self.admin_dsn, autocommit=True) as connection:
            connection.execute(statement)


@contextlib.contextmanager
def ending_with(drop: Callable[[], None]) -> Iterator[None]:
    """At its end ``drop`` is called; that it fails is told where nothing else has gone wrong."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(PgflowMigrateError, psycopg.Error):
            drop()
        raise
    drop()
