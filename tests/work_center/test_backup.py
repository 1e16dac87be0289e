"""The copy that an upgrade makes first."""

from __future__ import annotations

import os
import re
import resource
import signal
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.work_center.stores import everything, state

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.work_center.errors import StepRefused
from pgflow_migrate.work_center.progress import BackupMade, StepDone
from pgflow_migrate.work_center.upgrade import upgrade

Make = Callable[..., Path]


def _others(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir() if file != path)


def test_it_is_beside_the_store_named_by_step_and_time_and_is_the_store_before(make_at: Make) -> None:
    path = make_at("27", example=True)
    path.chmod(0o640)
    before = everything(path)
    told: list[object] = []
    result = upgrade(path, now=1000, on_progress=told.append)
    (name,) = _others(path)
    assert re.fullmatch(r"store\.db\.before-28-\d{8}T\d{6}Z\.bak", name)
    backup = path.with_name(name)
    assert result.backup == str(backup)
    assert everything(backup) == before
    assert stat.S_IMODE(backup.stat().st_mode) == 0o640
    made = [event for event in told if isinstance(event, BackupMade)]
    assert [(event.path, event.size) for event in made] == [(str(backup), backup.stat().st_size)]
    assert told.index(made[0]) < min(told.index(event) for event in told if isinstance(event, StepDone))


def test_two_in_the_same_second_have_names_of_their_own(make: Make) -> None:
    path = make(example=True)
    for step in ("23", "24"):
        upgrade(path, now=1, to=step)
    connection = sqlite3.connect(path)
    connection.execute("delete from schema_migrations where name like '24%'")
    connection.commit()
    connection.close()
    upgrade(path, now=1, to="24")
    assert len(_others(path)) == 3


def test_it_is_where_it_was_asked_for(make: Make, tmp_path: Path) -> None:
    path, target = make(example=True), tmp_path / "elsewhere" / "copy"
    target.parent.mkdir()
    before = everything(path)
    assert upgrade(path, now=1, backup=target).backup == str(target)
    assert everything(target) == before
    assert _others(target) == []


def test_none_is_made_when_not_wanted_or_not_needed(make: Make) -> None:
    path = make(example=True)
    assert upgrade(path, now=1, backup=False).backup is None
    assert upgrade(path, now=2).already_current
    assert _others(path) == []


def test_nothing_is_overwritten(make: Make, tmp_path: Path) -> None:
    path, target = make(example=True), tmp_path / "there"
    for kind in ("file", "link"):
        target.unlink(missing_ok=True)
        target.write_bytes(b"mine") if kind == "file" else target.symlink_to("nowhere")
        before = state(path)
        with pytest.raises(PgflowMigrateError) as caught:
            upgrade(path, backup=target)
        assert caught.value.message == f"{target} is there already."
        assert caught.value.details == ("Nothing was changed.",)
        assert state(path) == before


@pytest.mark.parametrize("ending", ["-journal", "-wal", "-shm"])
@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_a_name_that_sqlite_uses_is_refused(make: Make, ending: str, mode: str) -> None:
    path = make(example=True)
    connection = sqlite3.connect(path)
    connection.execute(f"pragma journal_mode = {mode}")
    connection.close()
    before = everything(path)
    (path.parent / "way").mkdir()
    for target in (Path(f"{path}{ending}"), path.parent / "way" / ".." / f"{path.name}{ending}"):
        with pytest.raises(PgflowMigrateError) as caught:
            upgrade(path, backup=target)
        assert caught.value.message == (
            f"The backup {target} cannot be written: SQLite itself uses that name, beside store.db."
        )
        assert caught.value.details == ("Nothing was changed.",)
    assert everything(path) == before


def test_a_folder_that_is_not_there_is_refused(make: Make, tmp_path: Path) -> None:
    path = make(example=True)
    before = state(path)
    with pytest.raises(PgflowMigrateError) as caught:
        upgrade(path, backup=tmp_path / "none" / "copy")
    assert caught.value.message == (
        f"The backup {tmp_path / 'none' / 'copy'} cannot be written: No such file or directory."
    )
    assert state(path) == before


def test_without_room_for_it_the_store_is_not_touched(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make(example=True)
    before = state(path)

    class _Usage:
        free = 10

    monkeypatch.setattr("shutil.disk_usage", lambda _: _Usage)
    with pytest.raises(PgflowMigrateError) as caught:
        upgrade(path)
    size = f"{path.stat().st_size:,}"
    assert caught.value.message.endswith(f"cannot be written: {path} has {size} bytes, and 10 are free.")
    assert state(path) == before


def test_when_the_room_ends_half_way_nothing_is_left_of_it(make: Make) -> None:
    path = make("insert into work_items (id, messages) values ('w', zeroblob(300000))")
    before = state(path)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
        with pytest.raises(PgflowMigrateError) as caught:
            upgrade(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert re.search(
        r"The backup .* cannot be written: disk I/O error|database or disk is full", str(caught.value)
    )
    assert caught.value.details == ("Nothing was changed.",)
    assert state(path) == before


def test_after_a_step_that_fails_it_is_kept_and_named(make: Make) -> None:
    path = make("""insert into work_items (id, messages) values ('w', '[{"role":{}}]')""")
    with pytest.raises(StepRefused) as caught:
        upgrade(path, now=1)
    (name,) = _others(path)
    assert caught.value.details[-1] == f"The backup is {path.with_name(name)}."


def test_others_may_read_the_store_while_it_is_made(make: Make) -> None:
    path = make(example=True)
    read: list[int] = []

    def listen(event: object) -> None:
        if isinstance(event, BackupMade):
            other = sqlite3.connect(path, timeout=0)
            read.append(other.execute("select count(*) from work_items").fetchone()[0])
            other.close()

    upgrade(path, now=1, on_progress=listen)
    assert read == [2]
    assert os.path.lexists(path)
