"""The store as a file: what kind of file it is, opening it, and what SQLite's errors mean."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from pgflow_migrate.errors import FenceError, PgflowMigrateError
from pgflow_migrate.work_center import values

_CACHE = 65_536  # KiB; keys are hashes, so a backfill's inserts go all over its indexes

LOCK_TIMEOUT = timedelta(seconds=5)
"""How long an upgrade waits for others to leave the store, unless told otherwise."""

TABLES = ("work_items", "actions", "runs", "events", "pending_action_inputs")
"""What makes a file a store of the Work Center program, at version 22 and above."""

COMPANIONS = ("-journal", "-wal", "-shm")
"""What SQLite appends to a database's name for the files that belong to it."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def require_file(path: Path) -> None:
    """Raise unless ``path`` may be a store. It is not opened: to close it would end SQLite's locks on it.

    Raises:
        PgflowMigrateError: nothing is there, or no regular file, or an empty one.
    """
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            raise PgflowMigrateError(
                f"{path} is a symbolic link: journal and backup belong beside the file itself.",
                f"Give that: {path.resolve()}",
            )
    except (FileNotFoundError, NotADirectoryError):
        raise PgflowMigrateError(f"There is no file {path}.", "Check the path of the store.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise PgflowMigrateError(f"{path} cannot be looked at: {reason}.") from None
    for is_kind, kind in _KINDS:
        if is_kind(status.st_mode):
            raise PgflowMigrateError(f"{path} is {kind}, not a store.", "Give the store's file.")
    if status.st_size == 0 and not _size(f"{path}-wal"):
        raise PgflowMigrateError(f"{path} is empty, not a store.", "Check the path of the store.")


@contextlib.contextmanager
def looking(path: Path, lock_timeout: timedelta = LOCK_TIMEOUT) -> Iterator[sqlite3.Connection]:
    """A connection that reads and changes nothing; one state of the store, however long it takes.

    Raises:
        PgflowMigrateError: the file cannot be read, is no store, or needs SQLite's recovery first.
        FenceError: another connection keeps it to itself.
    """
    require_file(path)
    companions = [Path(f"{path}{ending}") for ending in ("-wal", "-shm")]
    alone = not any(companion.exists() for companion in companions)
    with explained(path, lock_timeout):
        connection = _connect(path, "ro", lock_timeout)
        try:
            connection.execute("begin")
            connection.execute("select 1 from sqlite_master").fetchone()
            yield connection
        finally:
            connection.close()
            if alone and any(companion.exists() for companion in companions):
                _tidy(path)


@contextlib.contextmanager
def opened(path: Path, lock_timeout: timedelta = LOCK_TIMEOUT) -> Iterator[sqlite3.Connection]:
    """A connection for an upgrade: without a transaction, with the settings of the program's driver.

    Raises:
        PgflowMigrateError: the file cannot be read or is no store.
        FenceError: another connection keeps it to itself.
    """
    require_file(path)
    for needed in (path, path.absolute().parent):
        # Of the folder, too, because the journal is made there.
        if not os.access(needed, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
            raise _read_only(path, "it" if needed == path else "its folder")
    with explained(path, lock_timeout):
        connection = _connect(path, "rw", lock_timeout)
        try:
            connection.execute("pragma foreign_keys = on")
            connection.execute(f"pragma cache_size = -{_CACHE}")
            connection.execute("select 1 from sqlite_master").fetchone()
            yield connection
        finally:
            connection.close()


@contextlib.contextmanager
def explained(path: Path, lock_timeout: timedelta) -> Iterator[None]:
    """Turn SQLite's errors into sentences about the store.

    Raises:
        FenceError: it is locked.
        PgflowMigrateError: for every other reason.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _explanation(error, path, lock_timeout) from error


def is_about_the_store(error: sqlite3.Error) -> bool:
    """Whether copying a store failed because of the store: it is damaged or locked."""
    return any(words in str(error) for words in ("malformed", "not a database", "is locked"))


def has_hot_journal(path: Path) -> bool:
    """Whether a journal lies beside the file, which a program that died in a transaction has left."""
    return bool(_size(f"{path}-journal"))


def require_tables(connection: sqlite3.Connection, path: str) -> None:
    """Raise unless it is the Work Center program's.

    Raises:
        PgflowMigrateError: a table of :data:`TABLES` is missing.
    """
    found = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
    if missing := [table for table in TABLES if table not in found]:
        raise PgflowMigrateError(
            f"{path} is no store of the Work Center program at version 22 or above:"
            f" it has no table {missing[0]}.",
            "Check the path of the store.",
        )


def _connect(path: Path, mode: str, lock_timeout: timedelta) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}",
        uri=True,
        timeout=lock_timeout.total_seconds(),
        isolation_level=None,
    )
    connection.text_factory = values.text
    return connection


def _tidy(path: Path) -> None:
    """Remove the empty -wal and -shm that reading leaves in WAL mode, unless others use them."""
    with contextlib.suppress(sqlite3.Error):
        connection = _connect(path, "rw", timedelta(0))
        try:
            connection.execute("select 1 from sqlite_master").fetchone()
        finally:
            connection.close()


def _size(path: str) -> int:
    with contextlib.suppress(OSError):
        return Path(path).stat().st_size
    return 0


def _read_only(path: Path, what: str) -> PgflowMigrateError:
    return PgflowMigrateError(
        f"{path} may not be written: {what} is read-only to us.", "Run as a user who may write both."
    )


def _explanation(error: sqlite3.Error, path: Path, lock_timeout: timedelta) -> PgflowMigrateError:
    # By SQLite's own words: Python 3.10 does not tell its codes.
    text = " ".join(str(error).split())
    if "is locked" in text:
        return FenceError(
            f"{path} is locked by another connection, and was for all of {lock_timeout.total_seconds():g} s.",
            "It is safe to repeat: stop the Work Center program first, or give more time by --lock-timeout.",
        )
    if "file is not a database" in text:
        return PgflowMigrateError(f"{path} is no SQLite database.", "Check the path of the store.")
    if "malformed" in text:
        return PgflowMigrateError(
            f"{path} is damaged: {text}.", "Restore a backup, or copy what can be read by sqlite3's .recover."
        )
    if "readonly database" in text and has_hot_journal(path):
        return PgflowMigrateError(
            f"A program has died while it wrote to {path}: its journal {path.name}-journal is still there.",
            "An upgrade rolls that back, as the Work Center program does when it starts;"
            " neither file may be moved without the other.",
        )
    if "readonly database" in text:
        return _read_only(path, "it, or its folder,")
    if "unable to open" in text:
        return PgflowMigrateError(
            f"{path} cannot be opened: it or its folder may not be read or written.",
            "Run as a user who may read and write both.",
        )
    if "disk is full" in text:
        return PgflowMigrateError(
            f"There is no space left for {path}.",
            "Make room: an upgrade needs about the store's own size again.",
        )
    return PgflowMigrateError(f"{path}: SQLite says: {text}.")
