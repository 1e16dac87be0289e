"""A store before and after each step, and Alembic's folder read once."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from tests.work_center.crashes.dying import each_connection
from tests.work_center.stores import recorded, run

from pgflow_migrate import resources
from pgflow_migrate.work_center import baseline
from pgflow_migrate.work_center.chain import STEPS
from pgflow_migrate.work_center.upgrade import upgrade_connection

At = Callable[[int, Path], Path]


@pytest.fixture(autouse=True)
def _read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """That takes Alembic longer than a step takes us."""
    folder = ScriptDirectory.from_config(Config(str(resources.alembic_ini()), ini_section="work_center"))
    monkeypatch.setattr(ScriptDirectory, "from_config", lambda _: folder)


@pytest.fixture(autouse=True)
def _without_waiting_for_the_disk() -> Iterator[None]:
    """A process that dies takes nothing along of what it has handed to the kernel."""
    with each_connection(lambda connection: connection.execute("pragma synchronous = off")):
        yield


@pytest.fixture(scope="session")
def stores_at(tmp_path_factory: pytest.TempPathFactory) -> At:
    """``stores_at(30, target)``: a copy of the store as step 30 leaves it; 22 is before all of them.

    It has the example's rows, some that are odd, and before step 32 an older ``engine_turns``.
    """
    folder = tmp_path_factory.mktemp("stores")
    with closing(sqlite3.connect(folder / "22", isolation_level=None)) as connection:
        baseline.create(connection, example=True)
        run(connection, _more())
    for step in STEPS:
        path = folder / str(step.number)
        shutil.copy(folder / str(step.number - 1), path)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("pragma synchronous = off")
            connection.execute("pragma foreign_keys = on")
            upgrade_connection(connection, now=1000, to=step.name)
            if step.number == 31:
                connection.execute("pragma foreign_keys = off")
                run(connection, recorded("older.sql"))

    def copy(number: int, target: Path) -> Path:
        for ending in ("", "-journal", "-wal", "-shm"):
            target.with_name(f"{target.name}{ending}").unlink(missing_ok=True)
        shutil.copy(folder / str(number), target)
        return target

    return copy


def _more() -> str:
    """A row that fills some pages, so that step 30 writes before it ends when its cache is small."""
    return """
        insert into work_items
        values ('long', '[{"id":"m","text":"' || hex(zeroblob(30000)) || '"}]', 1, 2)
    """
