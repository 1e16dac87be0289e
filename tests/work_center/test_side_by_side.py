"""An upgrade beside other processes, and at the ends of what a file system allows."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from tests.work_center.crashes.dying import forked
from tests.work_center.stores import everything, rows

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.work_center.errors import StepRefused
from pgflow_migrate.work_center.progress import StepStarted
from pgflow_migrate.work_center.status import status
from pgflow_migrate.work_center.upgrade import upgrade
from pgflow_migrate.work_center.verify import verify

Make = Callable[..., Path]
PATIENT = timedelta(seconds=60)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_two_upgrades_at_once_are_one(make: Make, mode: str) -> None:
    path = make(example=True)
    alone = make(example=True, name="alone.db")
    upgrade(alone, now=1000, backup=False)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"pragma journal_mode = {mode}")
    begun, begin = os.pipe()

    def child() -> int:
        def listen(event: object) -> None:
            if isinstance(event, StepStarted) and event.number == 1:
                os.write(begin, b".")

        upgrade(path, now=1000, lock_timeout=PATIENT, backup=False, on_progress=listen)
        return 0

    def meanwhile(_: int) -> None:
        os.read(begun, 1)
        upgrade(path, now=1000, lock_timeout=PATIENT, backup=False)

    assert forked(child, meanwhile) == 0
    os.close(begun)
    os.close(begin)
    assert everything(path) == everything(alone)


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_lock_that_is_let_go_in_time_is_waited_for(make: Make, mode: str) -> None:
    path = make(example=True)
    locked, lock = os.pipe()
    waiting, wait = os.pipe()

    def child() -> int:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute(f"pragma journal_mode = {mode}")
            other.execute("begin immediate")
            other.execute("insert into work_items (id, messages) values ('late', '[{\"id\":1}]')")
            os.write(lock, b".")
            os.read(waiting, 1)  # the upgrade has looked, and is about to ask for the lock
            other.execute("commit")
        return 0

    def meanwhile(_: int) -> None:
        os.read(locked, 1)

        def listen(event: object) -> None:
            if isinstance(event, StepStarted) and event.number == 1:
                os.write(wait, b".")

        assert upgrade(path, now=1000, lock_timeout=PATIENT, backup=False, on_progress=listen).version == 35

    assert forked(child, meanwhile) == 0
    for handle in (locked, lock, waiting, wait):
        os.close(handle)
    assert status(path).rows["conversation_entries"] == 4, "what came in before the lock is backfilled, too"


def test_a_write_ahead_log_larger_than_the_store_is_copied_and_upgraded(make: Make) -> None:
    path = make(example=True)

    def child() -> int:
        connection = sqlite3.connect(path, isolation_level=None)
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma wal_autocheckpoint = 0")
        for number in range(8):
            connection.execute(
                "insert into work_items (id, messages) values (?, ?)", (f"n{number}", "[]" + " " * 500_000)
            )
        os._exit(0)  # without closing, which would empty the log

    assert forked(child) == 0
    log = Path(f"{path}-wal")
    assert log.stat().st_size > 20 * path.stat().st_size
    assert status(path).rows["work_items"] == 10
    result = upgrade(path, now=1000)
    assert result.backup is not None
    assert status(result.backup).rows["work_items"] == 10
    assert status(path).rows["conversations"] == 10
    assert verify(path).violations == ()


def test_a_folder_may_be_a_link_and_a_name_need_not_be_text(make: Make, tmp_path: Path) -> None:
    path = make(example=True)
    (tmp_path / "link").symlink_to(tmp_path, target_is_directory=True)
    odd = tmp_path / "link" / os.fsdecode(b"s\xff '\"%41?#.db")
    path.rename(odd)
    result = upgrade(odd, now=1000)
    assert result.backup is not None
    assert (status(odd).version, status(result.backup).version) == (35, 22)


def test_a_name_too_long_for_that_of_its_backup_is_refused(make: Make) -> None:
    path = make(example=True, name=f"{'n' * 240}.db")
    before = everything(path)
    with pytest.raises(PgflowMigrateError, match="cannot be written: File name too long") as caught:
        upgrade(path)
    assert caught.value.details == ("Nothing was changed.",)
    assert everything(path) == before
    assert upgrade(path, now=1000, backup=path.with_name("short")).version == 35


def test_a_table_that_the_program_drops_stays_when_no_step_is_taken(make: Make) -> None:
    """The program drops migration_context whenever it starts; here that is part of a step."""
    bad = """insert into work_items (id, messages) values ('w', '[{"role":{}}]')"""
    path = make("create table migration_context (a)", bad)
    with pytest.raises(StepRefused):
        upgrade(path, now=1000, backup=False)
    assert status(path).version == 29
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert "migration_context" not in rows(connection)  # step 23 took it away
        connection.execute("create table migration_context (a)")
    with pytest.raises(StepRefused):
        upgrade(path, now=1000, backup=False)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert "migration_context" in rows(connection)
        connection.execute("delete from work_items")
    assert upgrade(path, now=1000, backup=False).version == 35
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        assert "migration_context" not in rows(connection)
