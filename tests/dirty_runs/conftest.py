"""A database with protocol 2, and sessions on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.dirty_runs.protocol import Session

Open = Callable[[], Session]


@pytest.fixture
def dsn(database_at: Callable[[str], str]) -> str:
    """A database of the test's own."""
    return database_at("dirty_runs")


@pytest.fixture
def open_session(dsn: str) -> Iterator[Open]:
    """Open further sessions on the test's database; closed at its end."""
    opened: list[Session] = []

    def open_() -> Session:
        opened.append(Session(dsn))
        return opened[-1]

    yield open_
    for session in opened:
        session.close()


@pytest.fixture
def session(open_session: Open) -> Session:
    """A session on the test's database, without any flow."""
    return open_session()


@pytest.fixture
def demo(session: Session) -> Session:
    """A session on a database with the flow ``demo`` (a → b)."""
    session.define()
    return session
