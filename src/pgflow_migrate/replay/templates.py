"""Template databases: each state of the chain is built once a server, then cloned."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from pgflow_migrate import database, resources
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.replay import baseline
from pgflow_migrate.servers import How, Server, install_pgmq, install_surroundings, pgmq_as_extension

_numbers = itertools.count(1)


class Templates:
    """Builds on first use, and remembers, a template database for each revision."""

    def __init__(self, server: Server, *, pgmq: How | None = None, baseline_sql: Path | None = None) -> None:
        """Templates on ``server``.

        Args:
            server: where they are created.
            pgmq: how PGMQ is installed; by default as an extension where the server has it.
            baseline_sql: folder of released pgflow migrations to build the old cores from; by default our own
                revisions build them.
        """
        self._server = server
        self._pgmq = pgmq
        self._baseline_sql = baseline_sql
        # Several sets of templates may be in use on one server.
        self._prefix = f"template_{next(_numbers)}"
        self._built: dict[str, str] = {}

    @property
    def pgmq(self) -> How:
        """How PGMQ is installed in these templates."""
        if self._pgmq is None:
            with database.connect(self._server.admin_dsn) as connection:
                self._pgmq = "extension" if pgmq_as_extension(connection) else "sql"
        return self._pgmq

    def surroundings(self) -> str:
        """The name of a template with PGMQ and the stand-ins for Supabase, without pgflow."""
        return self._build("surroundings", lambda: "template0", self._install_surroundings)

    def at(self, revision: str) -> str:
        """The name of a template that has been upgraded, empty, to ``revision``."""

        def install(dsn: str) -> None:
            if self._baseline_sql is not None and revision in baseline.LAST_MIGRATION:
                baseline.build(dsn, self._baseline_sql, revision)
            else:
                upgrade_to(dsn, revision)

        return self._build(revision, self.surroundings, install)

    def _install_surroundings(self, dsn: str) -> None:
        with database.connect(dsn) as connection:
            install_pgmq(connection, self.pgmq)
            install_surroundings(connection)

    def _build(self, key: str, template: Callable[[], str], install: Callable[[str], None]) -> str:
        if key not in self._built:
            name = f"{self._prefix}_{key}"
            dsn = self._server.create_database(name, template=template())
            try:
                install(dsn)
            except BaseException:
                with contextlib.suppress(PgflowMigrateError, psycopg.Error):  # what went wrong first is told
                    self._server.drop_database(name)
                raise
            self._built[key] = name
        return self._built[key]

    def clone(self, revision: str, name: str) -> str:
        """Create database ``name`` at ``revision``; returns its connection string."""
        return self._server.create_database(name, template=self.at(revision))

    def drop(self) -> None:
        """Drop the templates; they are built again when they are needed."""
        while self._built:
            self._server.drop_database(self._built.popitem()[1])


def upgrade_to(dsn: str, revision: str) -> None:
    """Run the chain up to ``revision``, in one transaction."""
    engine = database.engine(dsn)
    try:
        with engine.begin() as connection:
            _upgrade(connection, revision)
    finally:
        engine.dispose()


def _upgrade(connection: sa.Connection, revision: str) -> None:
    config = Config(str(resources.alembic_ini()))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
