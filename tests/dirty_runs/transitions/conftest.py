"""Both ways of giving a flow its queues; a database for many tests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.dirty_runs.protocol import Session

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def database(server: Server, templates: Templates) -> Iterator[Session]:
    """A session on a database with the flow ``demo`` (a → b), for the tests of a file that leave nothing."""
    name = f"dirty_runs_transitions_{next(_numbers)}"
    session = Session(templates.clone("dirty_runs", name))
    session.define()
    yield session
    session.close()
    server.drop_database(name)


@pytest.fixture
def shared(database: Session) -> Iterator[Session]:
    """That session in a transaction that is rolled back: for what one connection shows without a chunk.

    Ids of messages go on from test to test.
    """
    with database.connection.transaction(force_rollback=True):
        yield database


@dataclass(frozen=True)
class Queues:
    """The queue of each step of ``demo``."""

    a: str
    b: str


@pytest.fixture(params=["one queue", "a queue a step"])
def queues(request: pytest.FixtureRequest, session: Session) -> Queues:
    """Define ``demo`` in one of the two modes."""
    each = request.param == "a queue a step"
    session.define(queues=each)
    return Queues("demo__a", "demo__b") if each else Queues("demo", "demo")


def break_hints(session: Session) -> None:
    """Let every event fail from now on."""
    session.execute(
        "create or replace function realtime.send("
        "  payload jsonb, event text, topic text, private boolean default true"
        ") returns void language plpgsql as"
        " $$begin raise exception 'no events today' using errcode = 'XX000'; end$$"
    )
