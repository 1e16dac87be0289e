"""The Alembic environment: one transaction, one connection, the version table in schema pgflow_migrate."""

from __future__ import annotations

import os
from typing import Any

import sqlalchemy as sa
from alembic.runtime.environment import EnvironmentContext
from sqlalchemy.engine import Connection

from pgflow_migrate import database

SCHEMA = "pgflow_migrate"
_CONFIGURE: dict[str, Any] = {
    "version_table": "alembic_version",
    "version_table_schema": SCHEMA,
    "transaction_per_migration": False,
}


def run_online(context: EnvironmentContext) -> None:
    """Run the revisions on the caller's connection, else on one of our own from ``-x dsn=``."""
    given = context.config.attributes.get("connection")
    if given is not None:
        _run(context, given)
        return
    dsn = database.resolve_dsn(context.get_x_argument(as_dictionary=True).get("dsn"), os.environ)
    engine = database.engine(dsn)
    try:
        with engine.begin() as connection:
            _run(context, connection)
    finally:
        engine.dispose()


def _run(context: EnvironmentContext, connection: Connection) -> None:
    exists = connection.execute(sa.text("select 1 from pg_namespace where nspname = :n"), {"n": SCHEMA}).scalar()
    if not exists:
        connection.exec_driver_sql(f"create schema {SCHEMA}")
    context.configure(connection=connection, **_CONFIGURE)
    context.run_migrations()


def run_offline(context: EnvironmentContext) -> None:
    """Print the revisions as one script."""
    context.configure(dialect_name="postgresql", as_sql=True, dialect_opts={"paramstyle": "named"}, **_CONFIGURE)
    with context.begin_transaction():
        context.run_migrations()
