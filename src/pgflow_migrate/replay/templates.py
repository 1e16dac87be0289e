"""Template databases: each state of the chain is built once a server, then cloned."""

from __future__ import annotations

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from pgflow_migrate import database, resources
from pgflow_migrate.servers import Server, install_pgmq, install_surroundings


class Templates:
    """Builds on first use, and remembers, a template database for each revision."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._built: dict[str, str] = {}

    def surroundings(self) -> str:
        """The name of a template with PGMQ and the stand-ins for Supabase, without pgflow."""
        if "" not in self._built:
            dsn = self._server.create_database("template_surroundings")
            with psycopg.connect(dsn) as connection:
                install_pgmq(connection)
                install_surroundings(connection)
            self._built[""] = "template_surroundings"
        return self._built[""]

    def at(self, revision: str) -> str:
        """The name of a template that has been upgraded, empty, to ``revision``."""
        if revision not in self._built:
            name = f"template_{revision}"
            dsn = self._server.create_database(name, template=self.surroundings())
            upgrade_to(dsn, revision)
            self._built[revision] = name
        return self._built[revision]

    def clone(self, revision: str, name: str) -> str:
        """Create database ``name`` at ``revision``; returns its connection string."""
        return self._server.create_database(name, template=self.at(revision))


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
