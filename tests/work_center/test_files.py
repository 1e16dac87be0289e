"""Files that are no store, or not to be had: each gets its sentence, and nothing is touched."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from tests.as_nobody import as_nobody
from tests.work_center.stores import everything, state

from pgflow_migrate.errors import (
    EXIT_COULD_NOT_RUN,
    EXIT_FENCE,
    BlockedError,
    FenceError,
    PgflowMigrateError,
)
from pgflow_migrate.work_center import structure
from pgflow_migrate.work_center.status import status
from pgflow_migrate.work_center.upgrade import upgrade
from pgflow_migrate.work_center.verify import verify

Make = Callable[..., Path]
Connect = Callable[[Path], sqlite3.Connection]
SHORT = timedelta(milliseconds=50)
CALLS = (upgrade, status, verify)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that everybody may read; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def _refused(call: Callable[[Path], object], path: Path) -> PgflowMigrateError:
    before = state(path)
    with pytest.raises(PgflowMigrateError) as caught:
        call(path)
    assert state(path) == before
    assert caught.value.exit_code == EXIT_COULD_NOT_RUN
    return caught.value


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_file_is_refused(tmp_path: Path, make: Make, call: Callable[[Path], object]) -> None:
    missing, empty, pipe, link = (tmp_path / name for name in ("missing", "empty", "pipe", "link"))
    empty.touch()
    os.mkfifo(pipe)
    link.symlink_to(make())
    sentences = {
        missing: f"There is no file {missing}.",
        missing / "below": f"There is no file {missing / 'below'}.",
        empty / "below": f"There is no file {empty / 'below'}.",
        tmp_path: f"{tmp_path} is a folder, not a store.",
        empty: f"{empty} is empty, not a store.",
        pipe: f"{pipe} is a pipe, not a store.",
        Path(os.devnull): f"{os.devnull} is a device, not a store.",
        link: f"{link} is a symbolic link: journal and backup belong beside the file itself.",
    }
    for path, sentence in sentences.items():
        with pytest.raises(PgflowMigrateError) as caught:
            call(path)
        assert (caught.value.message, caught.value.exit_code) == (sentence, EXIT_COULD_NOT_RUN)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["empty", "link", "pipe", "store.db"]


@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_database_is_refused(tmp_path: Path, call: Callable[[Path], object]) -> None:
    path = tmp_path / "text"
    path.write_text("some words\n" * 500, encoding="utf-8")
    assert _refused(call, path).message == f"{path} is no SQLite database."


@pytest.mark.parametrize("call", CALLS)
def test_another_programs_database_is_refused(tmp_path: Path, call: Callable[[Path], object]) -> None:
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("create table work_items (id)")
    connection.close()
    assert _refused(call, path).message == (
        f"{path} is no store of the Work Center program at version 22 or above: it has no table actions."
    )


@pytest.mark.parametrize("backup", [True, False])
def test_a_damaged_store_is_refused(make: Make, backup: bool) -> None:
    path = make("insert into work_items (id, messages) values ('w', zeroblob(100000))")
    content = bytearray(path.read_bytes())
    content[4096:4104] = b"\xff" * 8  # the head of the second page
    path.write_bytes(content)
    error = _refused(lambda store: upgrade(store, backup=backup), path)
    assert error.message.startswith(f"{path} is damaged: ")


def test_a_truncated_store_is_refused(make: Make) -> None:
    path = make("insert into work_items (id, messages) values ('w', zeroblob(100000))")
    os.truncate(path, path.stat().st_size // 2)
    assert _refused(upgrade, path).message.startswith(f"{path} is damaged: ")


@pytest.mark.parametrize(
    ("sql", "error"),
    [
        ("insert into schema_migrations values ('36-new', 'x', 1)", PgflowMigrateError),
        ("update schema_migrations set checksum = 'x'", BlockedError),
    ],
)
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_newer_or_changed_store_is_not_touched(
    make_at: Make, sql: str, error: type[PgflowMigrateError], mode: str
) -> None:
    path = make_at("24", sql, f"pragma journal_mode = {mode}")
    before = state(path)
    with pytest.raises(error):
        upgrade(path)
    assert state(path) == before


@pytest.mark.parametrize("lock", ["immediate", "exclusive"])
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_locked_store_is_the_fence(make: Make, connect: Connect, lock: str, mode: str) -> None:
    path = make()
    other = connect(path)
    other.execute(f"pragma journal_mode = {mode}")
    other.execute(f"begin {lock}")
    files = sorted(path.parent.iterdir())
    with pytest.raises(FenceError) as caught:
        upgrade(path, lock_timeout=SHORT)
    assert caught.value.message == f"{path} is locked by another connection, and was for all of 0.05 s."
    assert caught.value.exit_code == EXIT_FENCE
    assert caught.value.details == ("Nothing was changed.",)
    assert sorted(path.parent.iterdir()) == files
    other.execute("rollback")
    other.execute("insert into work_items (id) values ('the lock was still ours')")


def test_a_reader_holds_up_the_commit_and_the_step_is_taken_back(make: Make, connect: Connect) -> None:
    path = make(example=True)
    other = connect(path)
    other.execute("begin")
    other.execute("select * from work_items").fetchall()
    with pytest.raises(FenceError) as caught:
        upgrade(path, lock_timeout=SHORT, backup=False)
    assert caught.value.details == ("Nothing was changed.",)
    other.execute("rollback")
    assert other.execute("select 1 from sqlite_master where name = 'conversations'").fetchall() == []
    assert upgrade(path, now=1, backup=False).version == 35


def test_a_store_that_may_not_be_written_is_refused_but_can_be_looked_at(
    make: Make, open_folder: Path
) -> None:
    structure.expected()  # which reads the revisions' files, as those who may
    path = make(example=True).rename(open_folder / "store.db")
    path.chmod(0o444)
    open_folder.chmod(0o777)
    with as_nobody():
        error = _refused(upgrade, path)
        assert status(path).version == 22
        assert verify(path).violations == ()
    assert str(error) == (
        f"{path} may not be written: it is read-only to us. Run as a user who may write both."
    )


def test_a_folder_that_may_not_be_written_is_refused(make: Make, open_folder: Path) -> None:
    path = make(example=True).rename(open_folder / "store.db")
    path.chmod(0o666)
    with as_nobody():
        error = _refused(upgrade, path)
    assert error.message == f"{path} may not be written: its folder is read-only to us."
    assert error.details == ("Nothing was changed.",)


def test_a_store_that_may_not_be_read_is_refused(make: Make, open_folder: Path) -> None:
    path = make(example=True).rename(open_folder / "store.db")
    path.chmod(0)
    for call in CALLS:
        with as_nobody(), pytest.raises(PgflowMigrateError) as caught:
            call(path)
        assert caught.value.message == (
            f"{path} cannot be opened: it or its folder may not be read or written."
        )


def test_a_journal_that_is_left_over_is_rolled_back_by_an_upgrade_alone(make: Make) -> None:
    path = make(example=True)
    before = everything(path)
    _die_while_writing(path)
    journal = path.with_name("store.db-journal")
    assert journal.stat().st_size > 0
    for call in (status, verify):
        assert _refused(call, path).message == (
            f"A program has died while it wrote to {path}: its journal store.db-journal is still there."
        )
    told: list[object] = []
    result = upgrade(path, now=1000, on_progress=told.append)
    assert "is rolled back first" in str(told[0])
    assert result.version == 35
    assert not journal.exists()
    assert result.backup is not None
    assert everything(Path(result.backup)) == before


def test_a_write_ahead_log_that_is_left_over_is_read(make: Make) -> None:
    path = make("pragma user_version = 5")
    _die_while_writing(path, "pragma journal_mode = wal", commit=True)
    assert path.with_name("store.db-wal").stat().st_size > 0
    before = state(path)
    assert status(path).rows["work_items"] == 5000
    assert {name: found for name, found in state(path).items() if not name.endswith("-shm")} == {
        name: found for name, found in before.items() if not name.endswith("-shm")
    }
    result = upgrade(path, now=1000)
    assert (result.version, status(path).rows["conversations"]) == (35, 5000)
    assert result.backup is not None
    assert status(result.backup).rows["work_items"] == 5000


@pytest.mark.parametrize("call", [status, verify])
def test_looking_at_a_store_in_wal_mode_leaves_nothing(make_at: Make, call: Callable[[Path], object]) -> None:
    path = make_at("35", "pragma journal_mode = wal", example=True)
    before = state(path)
    call(path)
    assert state(path) == before


def test_a_path_with_signs_of_a_uri_is_a_path(make: Make) -> None:
    path = make(name="a store?mode=memory&x=%41#1.db", example=True)
    assert upgrade(path, now=1000).version == 35
    assert status(path).version == 35


def _die_while_writing(path: Path, *before: str, commit: bool = False) -> None:
    script = f"""
import os, sqlite3
connection = sqlite3.connect({str(path)!r}, isolation_level=None)
for statement in {before!r}:
    connection.execute(statement)
connection.execute("pragma cache_size = 2")
connection.execute("begin immediate")
for number in range(5000):
    connection.execute("insert into work_items (id, messages) values (?, ?)", (str(number), "[]" + " " * 500))
{'connection.execute("commit")' if commit else ""}
os._exit(9)
"""
    done = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert done.returncode == 9
