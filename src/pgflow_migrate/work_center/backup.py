"""A copy of the store as it is before the first step, made while others may read it."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import stat
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.work_center import store
from pgflow_migrate.work_center.progress import BackupMade

_REMEDY = "Give another place by --backup, or none by --no-backup."


def default_path(path: Path, number: int) -> Path:
    """``<store>.before-<number>-<UTC time>.bak`` beside the store; none that is there already.

    Args:
        path: the store.
        number: the first step's.
    """
    at = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    for attempt in range(1, 1000):
        again = f"-{attempt}" if attempt > 1 else ""
        target = path.with_name(f"{path.name}.before-{number}-{at}{again}.bak")
        if not os.path.lexists(target):
            return target
    raise PgflowMigrateError(f"There are too many backups {path.name}.before-{number}-{at}.", _REMEDY)


def make(path: Path, target: Path, lock_timeout: timedelta) -> BackupMade:
    """Copy the store at ``path``, check the copy, and put it on disk under its name; nothing is overwritten.

    Raises:
        PgflowMigrateError: it cannot be written, would have the name of the store's journal, or the store is
            damaged. Nothing is left.
    """
    started = time.monotonic()
    status = path.stat()
    _require_name_of_its_own(path, target)
    _require_room(path, target, status.st_size)
    try:
        handle, name = tempfile.mkstemp(prefix=f"{target.name}.", suffix=".partial", dir=target.parent)
    except OSError as error:
        raise _unwritable(target, str(error.strerror)) from error
    os.close(handle)
    partial = Path(name)
    try:
        _copy(path, partial, lock_timeout)
        partial.chmod(stat.S_IMODE(status.st_mode))
        _flush(partial)
        _name(partial, target)
        _flush(target.parent)
    except FileExistsError:
        raise PgflowMigrateError(f"{target} is there already.", _REMEDY) from None
    except OSError as error:
        raise _unwritable(target, str(error.strerror)) from error
    except sqlite3.Error as error:
        # What is wrong with the store itself, store.looking() has said.
        raise _unwritable(target, " ".join(str(error).split())) from error
    finally:
        for ending in ("", *store.COMPANIONS):
            with contextlib.suppress(OSError):
                Path(f"{name}{ending}").unlink()
    return BackupMade(str(target), target.stat().st_size, time.monotonic() - started)


def _name(partial: Path, target: Path) -> None:
    try:
        os.link(partial, target)  # unlike a rename, never over a file that is there
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise FileExistsError from None
        partial.rename(target)


def _copy(path: Path, partial: Path, lock_timeout: timedelta) -> None:
    failure: sqlite3.Error | None = None
    with store.looking(path, lock_timeout) as source:
        copy = sqlite3.connect(partial, isolation_level=None)
        try:
            source.backup(copy)
            found = [line for (line,) in copy.execute("pragma integrity_check")]
        except sqlite3.Error as error:
            if store.is_about_the_store(error):
                raise
            failure = error
        finally:
            copy.close()
    if failure is not None:
        raise failure
    if found != ["ok"]:
        raise PgflowMigrateError(
            f"{path} is damaged: {found[0]}.",
            "Restore a backup, or copy what can be read by sqlite3's .recover.",
        )


def _require_name_of_its_own(path: Path, target: Path) -> None:
    """SQLite would take a file of such a name for the store's, write over it, and delete it."""
    for ending in store.COMPANIONS:
        if target.resolve() == Path(f"{path.resolve()}{ending}"):
            raise _unwritable(target, f"SQLite itself uses that name, beside {path.name}")


def _require_room(path: Path, target: Path, size: int) -> None:
    if os.path.lexists(target):
        raise PgflowMigrateError(f"{target} is there already.", _REMEDY)
    try:
        free = shutil.disk_usage(target.parent).free
    except OSError as error:
        raise _unwritable(target, str(error.strerror)) from error
    if free < size:
        raise _unwritable(target, f"{path} has {size:,} bytes, and {free:,} are free")


def _flush(path: Path) -> None:
    """Wait until a file, or a folder's list of files, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _unwritable(target: Path, reason: str) -> PgflowMigrateError:
    return PgflowMigrateError(f"The backup {target} cannot be written: {reason}.", _REMEDY)
