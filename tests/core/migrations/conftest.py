"""Upgrading a populated database from one old release to the next."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from alembic import command
from alembic.config import Config

from pgflow_migrate import database, resources
from pgflow_migrate.errors import SqlFileError

Connection = psycopg.Connection[dict[str, Any]]
State = dict[str, list[dict[str, Any]]]


@contextlib.contextmanager
def _upgrading(dsn: str, revision: str) -> Iterator[None]:
    """Run the chain up to ``revision``; the transaction is committed when the block ends."""
    config = Config(str(resources.alembic_ini()))
    engine = database.engine(dsn)
    try:
        with engine.begin() as connection:
            # These tests are about what the revisions themselves refuse, as in a script made by --sql.
            config.attributes.update(connection=connection, trust_record=True)
            command.upgrade(config, revision)
            yield
    finally:
        engine.dispose()


@pytest.fixture(scope="session")
def upgrading() -> Callable[[str, str], contextlib.AbstractContextManager[None]]:
    """``with upgrading(dsn, revision):`` the upgrade has run and is not committed yet."""
    return _upgrading


@pytest.fixture(scope="session")
def upgrade() -> Callable[[str, str], None]:
    """Run the chain up to a revision, in one transaction."""

    def run(dsn: str, revision: str) -> None:
        with _upgrading(dsn, revision):
            pass

    return run


@pytest.fixture
def refused_upgrade(
    connect: Callable[[str], Connection],
    state_of: Callable[[Connection], State],
    catalogue_of: Callable[[Connection], dict[str, Any]],
) -> Callable[[str, str], SqlFileError]:
    """The error of an upgrade that fails and leaves rows, functions and version as they were."""

    def run(dsn: str, revision: str) -> SqlFileError:
        connection = connect(dsn)
        before = state_of(connection), catalogue_of(connection), _version(connection)
        with pytest.raises(SqlFileError) as caught, _upgrading(dsn, revision):
            pass
        assert (state_of(connection), catalogue_of(connection), _version(connection)) == before
        return caught.value

    return run


def _version(connection: Connection) -> list[dict[str, Any]]:
    return connection.execute("select version_num from pgflow_migrate.alembic_version").fetchall()


@pytest.fixture(scope="session")
def catalogue_of() -> Callable[[Connection], dict[str, Any]]:
    """Functions (with a digest of the body), columns, constraints and indexes of schema pgflow."""

    def read(connection: Connection) -> dict[str, Any]:
        functions = connection.execute(
            """
            select oid::regprocedure::text as name, to_jsonb(p) - 'prosrc' - 'prosqlbody' as attributes,
              md5(prosrc) as body
            from pg_proc as p where pronamespace = 'pgflow'::regnamespace order by 1
            """
        ).fetchall()
        columns = connection.execute(
            """
            select attrelid::regclass::text, attnum, attname, format_type(atttypid, atttypmod), attnotnull,
              pg_get_expr(adbin, adrelid)
            from pg_attribute join pg_class as c on c.oid = attrelid
              left join pg_attrdef on adrelid = attrelid and adnum = attnum
            where relnamespace = 'pgflow'::regnamespace and relkind in ('r', 'c') and attnum > 0 order by 1, 2
            """
        ).fetchall()
        constraints = connection.execute(
            "select conrelid::regclass::text as table, conname, pg_get_constraintdef(oid) as definition"
            " from pg_constraint where connamespace = 'pgflow'::regnamespace and contype <> 'n' order by 1, 2"
        ).fetchall()
        indexes = connection.execute(
            "select indexname, indexdef from pg_indexes where schemaname = 'pgflow' order by 1"
        ).fetchall()
        return {
            "functions": {found["name"]: found for found in functions},
            "columns": columns,
            "constraints": {(found["table"], found["conname"]): found["definition"] for found in constraints},
            "indexes": indexes,
        }

    return read
