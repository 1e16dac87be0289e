"""Killed while the backup is made, no room left, SIGTERM and Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.work_center.crashes.dying import forked, limit_files
from tests.work_center.stores import everything, state

from pgflow_migrate.cli import main
from pgflow_migrate.errors import EXIT_COULD_NOT_RUN, PgflowMigrateError
from pgflow_migrate.work_center import backup
from pgflow_migrate.work_center import upgrade as upgrades
from pgflow_migrate.work_center.progress import RowsRead
from pgflow_migrate.work_center.status import status
from pgflow_migrate.work_center.upgrade import upgrade

At = Callable[[int, Path], Path]
NOW = 1000


def _dies(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _later(function: Callable[..., object]) -> Callable[..., object]:
    def called(*arguments: object, **options: object) -> None:
        function(*arguments, **options)
        _dies()

    return called


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("before it is copied", "partial"),
        ("after it is copied", "partial"),
        ("before it has its name", "partial"),
        ("after it has its name", "both"),
    ],
)
def test_killed_while_the_backup_is_made_the_store_is_untouched(
    tmp_path: Path, stores_at: At, where: str, left: str
) -> None:
    path = stores_at(22, tmp_path / "store.db")
    before, content = state(path)["store.db"], everything(path)

    def child() -> None:
        if where == "before it is copied":
            backup._copy = _dies
        elif where == "after it is copied":
            backup._copy = _later(backup._copy)  # type: ignore[assignment]
        elif where == "before it has its name":
            backup._name = _dies
        else:
            backup._name = _later(backup._name)  # type: ignore[assignment]
        upgrade(path, now=NOW)

    assert forked(child) == -signal.SIGKILL
    files = state(path)
    assert files["store.db"] == before
    others = sorted(name.rpartition(".")[2] for name in files if name != "store.db")
    assert others == (["partial"] if left == "partial" else ["bak", "partial"])
    result = upgrade(path, now=NOW)
    assert result.backup is not None
    assert result.version == 35
    for name in state(path):
        if name.endswith(".bak"):
            assert everything(tmp_path / name) == content


def test_killed_in_the_middle_of_copying_the_store_is_untouched(tmp_path: Path, stores_at: At) -> None:
    path = stores_at(22, tmp_path / "store.db")
    before = state(path)["store.db"]
    size = len(before[0])

    def child() -> None:
        limit_files(size // 2, deadly=True)
        upgrade(path, now=NOW)

    assert forked(child) == -signal.SIGXFSZ
    files = state(path)
    assert files["store.db"] == before
    (partial,) = (name for name in files if name.endswith(".partial"))
    assert 0 < len(files[partial][0]) < size
    assert upgrade(path, now=NOW).version == 35


@pytest.mark.parametrize("mode", ["delete", "wal"])
def test_without_room_for_the_store_the_steps_that_are_done_stay(
    tmp_path: Path, stores_at: At, mode: str
) -> None:
    undisturbed = stores_at(22, tmp_path / "undisturbed")
    upgrade(undisturbed, now=NOW, backup=False)
    seen = set()
    for room in range(0, 300_000, 30_000):
        path = stores_at(22, tmp_path / "store.db")
        size = path.stat().st_size

        def child(path: Path = path, limit: int = size + room) -> int:
            limit_files(limit, deadly=False)
            try:
                upgrade(path, now=NOW, backup=False)
            except PgflowMigrateError as failed:
                error = failed
            else:
                return 0
            assert "disk" in str(error) or "space" in str(error)
            kept = status(path).version
            assert error.details[0].startswith("Nothing was" if kept == 22 else "Done before, and kept: 23")
            return kept

        seen.add(forked(child))
        upgrade(path, now=NOW, backup=False)
        assert everything(path) == everything(undisturbed)
    assert len(seen) > 2
    assert seen <= {0, *range(22, 35)}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_takes_the_step_back_and_the_command_says_what_is_done(
    tmp_path: Path, stores_at: At, number: signal.Signals
) -> None:
    path = stores_at(22, tmp_path / "store.db")
    undisturbed = stores_at(22, tmp_path / "undisturbed")
    errors = tmp_path / "stderr"
    told, tell = os.pipe()

    def child() -> int:
        real = upgrades.upgrade

        def waiting(*arguments: object, **options: object) -> object:
            def listen(event: object) -> None:
                if isinstance(event, RowsRead) and event.table == "events":
                    os.write(tell, b".")
                    signal.pause()

            return real(*arguments, **{**options, "on_progress": listen})  # type: ignore[arg-type]

        upgrades.upgrade = waiting  # type: ignore[assignment]
        sys.stderr = errors.open("w", encoding="utf-8")
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            main(["work-center", "upgrade", str(path), "--now", str(NOW), "--no-backup"])
        except SystemExit as end:
            return int(end.code or 0)
        return 0

    def meanwhile(pid: int) -> None:
        os.read(told, 1)
        os.kill(pid, number)

    assert forked(child, meanwhile) == EXIT_COULD_NOT_RUN
    os.close(told)
    os.close(tell)
    name = "SIGTERM" if number is signal.SIGTERM else "Ctrl-C"
    first, second = errors.read_text(encoding="utf-8").splitlines()
    assert first == f"error: {name} ended the upgrade; what was running was rolled back."
    assert second.startswith("Done before, and kept: 23-conversation-stream, ")
    assert second.endswith(", 29-runtime-indexes. It is safe to repeat.")
    assert status(path).version == 29
    upgrade(path, now=NOW, backup=False)
    upgrade(undisturbed, now=NOW, backup=False)
    assert everything(path) == everything(undisturbed)
