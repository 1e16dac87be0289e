"""One database a release, shared by this folder; each test works in a transaction that is rolled back.

So "now" is one moment in a test, and "clock" is later. A test that needs commits takes a database of its own
(``database_at``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

Connection = psycopg.Connection[dict[str, Any]]

RELEASES = ("core_0_15_0", "core_0_15_1", "core_0_16_0")


@pytest.fixture(params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    """Every release in turn: what a test of this folder says holds for all, unless it says otherwise."""
    return str(request.param)


@pytest.fixture(scope="session")
def session_at(server: Server, templates: Templates) -> Iterator[Callable[[str], Connection]]:
    """The folder's connection to its database at a release; kept open, as a new session starts cold."""
    opened: dict[str, Connection] = {}

    def at(release: str) -> Connection:
        if release not in opened:
            dsn = templates.clone(release, f"definitions_{release}")
            opened[release] = psycopg.connect(dsn, row_factory=dict_row, prepare_threshold=None)
        return opened[release]

    yield at
    for release, connection in opened.items():
        connection.close()
        server.drop_database(f"definitions_{release}")


@pytest.fixture
def db(session_at: Callable[[str], Connection], release: str) -> Iterator[Connection]:
    """A connection inside a transaction that is rolled back at the end of the test."""
    connection = session_at(release)
    yield connection
    connection.rollback()


@pytest.fixture
def rows(db: Connection) -> Callable[..., list[dict[str, Any]]]:
    """All rows of a query."""

    def run(statement: str, *parameters: object) -> list[dict[str, Any]]:
        return db.execute(statement, parameters).fetchall()

    return run


@pytest.fixture
def row(rows: Callable[..., list[dict[str, Any]]]) -> Callable[..., dict[str, Any]]:
    """The only row of a query."""

    def run(statement: str, *parameters: object) -> dict[str, Any]:
        (only,) = rows(statement, *parameters)
        return only

    return run


@pytest.fixture
def value(row: Callable[..., dict[str, Any]]) -> Callable[..., Any]:
    """The only column of the only row of a query."""

    def run(statement: str, *parameters: object) -> Any:
        (only,) = row(statement, *parameters).values()
        return only

    return run


@pytest.fixture
def refused(
    db: Connection, state_of: Callable[[Connection], dict[str, list[dict[str, Any]]]]
) -> Callable[..., psycopg.Error]:
    """The error that a statement raises, after making sure that it left everything as it was."""

    def run(statement: str, *parameters: object) -> psycopg.Error:
        before = state_of(db)
        with pytest.raises(psycopg.Error) as caught, db.transaction():
            db.execute(statement, parameters)
        assert state_of(db) == before
        return caught.value

    return run


@pytest.fixture
def violates(refused: Callable[..., psycopg.Error]) -> Callable[..., tuple[str | None, str | None]]:
    """SQLSTATE and constraint of the error that a statement raises; nothing changed."""

    def run(statement: str, *parameters: object) -> tuple[str | None, str | None]:
        error = refused(statement, *parameters)
        return error.sqlstate, error.diag.constraint_name

    return run


@pytest.fixture
def make_local(db: Connection) -> Callable[[], None]:
    """Make the rest of the transaction look like Supabase's local stack."""

    def set_secret() -> None:
        db.execute(
            "select set_config('app.settings.jwt_secret',"
            " 'super-secret-jwt-token-with-at-least-32-characters-long', true)"
        )

    return set_secret
