"""SIGKILL before every statement of every step, and in the middle of writing."""

from __future__ import annotations

import gc
import hashlib
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from tests.work_center.crashes.dying import forked, killed_before, limit_files
from tests.work_center.stores import everything

from pgflow_migrate.work_center import ledger, store
from pgflow_migrate.work_center.chain import STEPS, Step
from pgflow_migrate.work_center.upgrade import upgrade

At = Callable[[int, Path], Path]
NOW = 1000
_UNOPENED = 7  # of so many stores one goes to the next upgrade without having been opened in between


_CONTENTS: dict[bytes, object] = {}


def _content(path: Path) -> object:
    """What is in a store that nobody has open; many of them are the same to the byte."""
    assert not path.with_name(f"{path.name}-wal").exists()
    assert not path.with_name(f"{path.name}-journal").exists()
    key = hashlib.sha256(path.read_bytes()).digest()
    if key not in _CONTENTS:
        _CONTENTS[key] = everything(path)
    return _CONTENTS[key]


def _whole(path: Path, before: object, after: object, step: Step) -> bool:
    """Assert that a store is whole and is as before the step or as after it; whether the latter."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert connection.execute("pragma foreign_key_check").fetchall() == []
        done = step.name in ledger.read(connection)
    assert _content(path) == (after if done else before)
    return done


def _mode(path: Path, mode: str) -> Path:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"pragma journal_mode = {mode}")
    return path


# In WAL mode the steps that change most rows, and the one that builds a table anew.
KILLED = [(step, "delete", 1) for step in STEPS] + [
    (step, "wal", 3) for step in STEPS if step.number in (28, 30, 32)
]


@pytest.mark.parametrize(("step", "mode", "each"), KILLED, ids=lambda value: getattr(value, "name", value))
def test_killed_before_any_statement_a_step_is_whole_or_not_at_all(
    tmp_path: Path, stores_at: At, monkeypatch: pytest.MonkeyPatch, step: Step, mode: str, each: int
) -> None:
    monkeypatch.setattr(store, "_CACHE", 1)  # so small that a step writes to the file long before it commits
    before = everything(stores_at(step.number - 1, tmp_path / "before"))
    undisturbed = stores_at(step.number - 1, tmp_path / "undisturbed")
    upgrade(undisturbed, now=NOW, to=step.name, backup=False)
    after = everything(undisturbed)
    first = _mode(stores_at(step.number - 1, tmp_path / "first"), mode)
    path, killed, outcomes, journals = tmp_path / "store.db", 0, set(), 0
    repeated: set[bytes] = set()
    gc.freeze()  # a child then shares more of its memory with us
    while True:
        shutil.copy(first, path)

        def child(statement: int = killed * each + 1) -> None:
            with killed_before(statement):
                upgrade(path, now=NOW, to=step.name, backup=False)

        ended = forked(child)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        killed += 1
        journals += any(path.with_name(f"store.db-{kind}").exists() for kind in ("journal", "wal"))
        if killed % _UNOPENED:
            outcomes.add(_whole(path, before, after, step))
            content = path.read_bytes()
            if content in repeated:
                continue  # from the same bytes comes the same end
            repeated.add(content)
        upgrade(path, now=NOW, to=step.name, backup=False)
        assert _whole(path, before, after, step)
    assert everything(path) == after
    assert killed * each > 10
    assert outcomes == {False, True}, "some kills came before the step was committed, some after"
    assert journals > 0


def test_from_any_step_the_rest_follows_with_the_same_end(tmp_path: Path, stores_at: At) -> None:
    undisturbed = stores_at(31, tmp_path / "undisturbed")
    upgrade(undisturbed, now=NOW, backup=False)
    for statement in range(1, 200, 23):
        path = stores_at(31, tmp_path / "store.db")

        def child(path: Path = path, statement: int = statement) -> None:
            with killed_before(statement):
                upgrade(path, now=NOW, backup=False)

        if forked(child) == 0:
            break
        upgrade(path, now=NOW, backup=False)
        assert everything(path) == everything(undisturbed)
    assert statement > 23


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_killed_in_the_middle_of_writing_nothing_is_half_done(
    tmp_path: Path, stores_at: At, mode: str
) -> None:
    """The kernel ends the process at the first write beyond a size, in a commit as elsewhere."""
    (step,) = (step for step in STEPS if step.number == 30)
    before = everything(stores_at(29, tmp_path / "before"))
    undisturbed = stores_at(29, tmp_path / "undisturbed")
    upgrade(undisturbed, now=NOW, to=step.name, backup=False)
    after, path, died = everything(undisturbed), tmp_path / "store.db", 0
    for size in range(4096, 500_000, 20_480):
        _mode(stores_at(29, path), mode)

        def child(size: int = size) -> None:
            limit_files(size, deadly=True)
            upgrade(path, now=NOW, to=step.name, backup=False)

        died += forked(child) == -signal.SIGXFSZ
        _whole(path, before, after, step)
        upgrade(path, now=NOW, to=step.name, backup=False)
        assert _whole(path, before, after, step)
    assert died > 3
