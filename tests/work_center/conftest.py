"""Stores for tests: a file of each test's own, made by SQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.work_center.stores import run

from pgflow_migrate.work_center import baseline
from pgflow_migrate.work_center.upgrade import upgrade_connection

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """``make("insert …", …, name="store.db")``: a store at version 22, then these statements."""

    def make_(*sql: str, name: str = "store.db", example: bool = False) -> Path:
        path = tmp_path / name
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("begin")
        baseline.create(connection, example=example)
        run(connection, *sql)
        connection.execute("commit")
        connection.close()
        return path

    return make_


@pytest.fixture
def connect() -> Iterator[Callable[[Path], sqlite3.Connection]]:
    """Open connections, in autocommit and with foreign keys on, that are closed at the end of the test."""
    opened: list[sqlite3.Connection] = []

    def open_(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("pragma foreign_keys = on")
        opened.append(connection)
        return connection

    yield open_
    for connection in opened:
        connection.close()


@pytest.fixture
def memory(connect: Callable[[Path], sqlite3.Connection]) -> Callable[..., sqlite3.Connection]:
    """``memory("insert …", …)``: a store at version 22 in memory, then these statements."""

    def make_(*sql: str, example: bool = False) -> sqlite3.Connection:
        connection = connect(Path(":memory:"))
        baseline.create(connection, example=example)
        run(connection, *sql)
        return connection

    return make_


@pytest.fixture(scope="session")
def templates() -> Iterator[Callable[[str, bool], sqlite3.Connection]]:
    """Stores at a step, upgraded at time 1000, once for all tests; they are copied, not used."""
    made: dict[tuple[str, bool], sqlite3.Connection] = {}

    def template(step: str, example: bool) -> sqlite3.Connection:
        if (step, example) not in made:
            connection = made[step, example] = sqlite3.connect(":memory:", isolation_level=None)
            baseline.create(connection, example=example)
            upgrade_connection(connection, now=1000, to=step)
        return made[step, example]

    yield template
    for connection in made.values():
        connection.close()


@pytest.fixture
def memory_at(
    connect: Callable[[Path], sqlite3.Connection],
    templates: Callable[[str, bool], sqlite3.Connection],
) -> Callable[..., sqlite3.Connection]:
    """``memory_at("33", example=True)``: a store in memory after this step."""

    def make_(step: str, *, example: bool = False) -> sqlite3.Connection:
        connection = connect(Path(":memory:"))
        templates(step, example).backup(connection)
        return connection

    return make_


@pytest.fixture
def make_at(tmp_path: Path, templates: Callable[[str, bool], sqlite3.Connection]) -> Callable[..., Path]:
    """``make_at("33", "update …", …, example=True)``: a store in a file after this step, then these."""

    def make_(step: str, *sql: str, name: str = "store.db", example: bool = False) -> Path:
        connection = sqlite3.connect(tmp_path / name, isolation_level=None)
        templates(step, example).backup(connection)
        connection.execute("pragma foreign_keys = on")
        run(connection, *sql)
        connection.close()
        return tmp_path / name

    return make_
