"""Servers, templates and a database of its own for each test."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg.rows import dict_row
from tests import in_memory

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server, open_server

Row = dict[str, object]
Connection = psycopg.Connection[dict[str, object]]

_numbers = itertools.count(1)

# Files of many seconds, half of them spent waiting: begun last, they would run alone at the end.
BEGIN_WITH = (
    "tests/worker/",
    "tests/faults/",
    "tests/test_documented_commands.py",
    "tests/traffic/",
    "tests/dirty_runs/test_model_1.py",
    "tests/dirty_runs/stress/",
    "tests/upgrade/test_alembic_command.py",
    "tests/upgrade/test_downgrade.py",
    "tests/work_center/crashes/",
    "tests/work_center/generated/",
)


def pytest_configure() -> None:
    """Before any server starts, and before pytest-xdist starts its processes."""
    in_memory.use_it()
    # In a shell's background Ctrl-C is ignored, also by what is started here and sent one by tests.
    for number in (signal.SIGINT, signal.SIGQUIT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; the order within a file stays."""
    items.sort(key=lambda item: not item.nodeid.startswith(BEGIN_WITH))


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """The server of this test process (PGFLOW_MIGRATE_TEST_SERVER names another kind)."""
    with open_server(os.environ.get("PGFLOW_MIGRATE_TEST_SERVER", "embedded:18")) as running:
        yield running


@pytest.fixture(scope="session")
def templates(server: Server) -> Templates:
    """The template databases of this server."""
    return Templates(server)


@pytest.fixture
def database_at(server: Server, templates: Templates) -> Iterator[Callable[[str], str]]:
    """Make databases of the test's own: ``database_at("core_0_16_0")`` returns a connection string."""
    made: list[str] = []

    def make(revision: str) -> str:
        name = f"test_{next(_numbers)}"
        made.append(name)
        if not revision:
            return server.create_database(name, template=templates.surroundings())
        return templates.clone(revision, name)

    yield make
    for name in made:
        server.drop_database(name)


@pytest.fixture
def connect() -> Iterator[Callable[[str], Connection]]:
    """Open connections (autocommit, rows as dicts) that are closed at the end of the test."""
    opened: list[Connection] = []

    def open_(dsn: str) -> Connection:
        opened.append(psycopg.connect(dsn, autocommit=True, row_factory=dict_row))
        return opened[-1]

    yield open_
    for connection in opened:
        connection.close()
