"""The upgrade of a store: step by step, each of them whole or not at all."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pgflow_migrate import resources
from pgflow_migrate.errors import Interrupted, PgflowMigrateError
from pgflow_migrate.work_center import ledger, opening, progress, values
from pgflow_migrate.work_center import store as files
from pgflow_migrate.work_center.chain import STEPS, Step, find, up_to
from pgflow_migrate.work_center.opening import SOURCE_SCHEMA_VERSION
from pgflow_migrate.work_center.progress import BackupMade, Event, Listener, Note, StepDone
from pgflow_migrate.work_center.revision import Store

__all__ = ["Result", "upgrade", "upgrade_connection"]

SECTION = "work_center"


@dataclass(frozen=True)
class Result:
    """What an upgrade did.

    Attributes:
        path: the store; empty where a connection was given.
        from_version: the schema version before: that of the last step up to which all were recorded, or 22.
        version: likewise, now.
        steps: those that were applied or adopted, in order.
        already_current: whether there was nothing to do.
        backup: where the backup is; None when none was made.
        now: the time that was recorded, in milliseconds since 1970.
    """

    path: str
    from_version: int
    version: int
    steps: tuple[StepDone, ...]
    already_current: bool
    backup: str | None
    now: int


class _Listening:
    """Passes events on and keeps those that the result is made of."""

    def __init__(self, on_progress: Listener) -> None:
        self._on_progress = on_progress
        self.steps: list[StepDone] = []
        self.backup: str | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, StepDone):
            self.steps.append(event)
        elif isinstance(event, BackupMade):
            self.backup = event.path
        self._on_progress(event)

    def left(self) -> tuple[str, ...]:
        """What a failure leaves behind, as sentences."""
        sentences = []
        if self.steps:
            names = ", ".join(done.step for done in self.steps)
            sentences.append(f"Done before, and kept: {names}.")
        else:
            sentences.append("Nothing was changed.")
        if self.backup is not None:
            sentences.append(f"The backup is {self.backup}.")
        return tuple(sentences)


def upgrade(
    path: str | Path,
    *,
    now: int | None = None,
    source_schema_version: int = SOURCE_SCHEMA_VERSION,
    to: str | None = None,
    backup: Path | bool = True,
    lock_timeout: timedelta = files.LOCK_TIMEOUT,
    on_progress: Listener = progress.ignore,
) -> Result:
    """Take a store up to step ``to``, each step in a transaction of its own.

    Args:
        path: the store's file.
        now: the time to record, in milliseconds since 1970; the clock's unless given.
        source_schema_version: the version that backfilled rows are said to come from; part of their keys.
        to: a step as :func:`pgflow_migrate.work_center.chain.find` knows it; the last one unless given.
        backup: where to copy the store to before the first step; True for a name beside it, False for none.
        lock_timeout: how long to wait, each time, for others who use the store.
        on_progress: called with each :data:`~pgflow_migrate.work_center.progress.Event`, in this thread.

    Raises:
        StepRefused: a step met what it must not pass, such as a row that the program could not read either.
        BlockedError: a recorded checksum is not that of the step.
        FenceError: others used the store all the time.
        PgflowMigrateError: it could not run: no store, a newer one, a damaged one, no room.
        Interrupted: a KeyboardInterrupt came, and the step that ran has been rolled back.

    After each of them the steps that were done before stay; the error's details name them.
    """
    path = Path(path)
    target = step_named(to)
    listening = _Listening(on_progress)
    with _telling_what_is_left(listening):
        entries = _entries(path, lock_timeout, listening)
        if entries is not None and not _due(entries, target):
            return _result(str(path), entries, entries, opening.clock(now), listening)
        with opening.for_upgrade(
            path,
            now=now,
            source_schema_version=source_schema_version,
            lock_timeout=lock_timeout,
            backup=backup,
            on_progress=listening,
        ) as (store, before_first):
            before = ledger.read(store.connection)
            _migrate(store, target, before_first)
            return _result(str(path), before, ledger.read(store.connection), store.now, listening)


def upgrade_connection(
    connection: sqlite3.Connection,
    *,
    now: int | None = None,
    source_schema_version: int = SOURCE_SCHEMA_VERSION,
    to: str | None = None,
    on_progress: Listener = progress.ignore,
) -> Result:
    """Take the store on ``connection`` up to step ``to``; arguments and errors as for :func:`upgrade`.

    When the connection is in a transaction, all happens within that, each step in a savepoint, and to commit
    or not is the caller's. Otherwise each step has a transaction of its own. ``pragma foreign_keys`` is left
    as it is; the program has it on. There is no backup.

    Raises:
        sqlite3.OperationalError: the store was locked.
    """
    target = step_named(to)
    listening = _Listening(on_progress)
    factory, connection.text_factory = connection.text_factory, values.text
    rows, connection.row_factory = connection.row_factory, None
    try:
        with _telling_what_is_left(listening):
            before = opening.check(connection, "The connection's database")
            store = opening.described(connection, now, source_schema_version, listening)
            if _due(before, target):
                _migrate(store, target, lambda step: None)
            return _result("", before, ledger.read(connection), store.now, listening)
    finally:
        connection.text_factory, connection.row_factory = factory, rows


def step_named(to: str | None) -> Step:
    """The step that ``to`` names; the last one for None.

    Raises:
        PgflowMigrateError: there is none of that name.
    """
    found = STEPS[-1] if to is None else find(to)
    if found is None:
        raise PgflowMigrateError(
            f'There is no step "{to}".', f"There are {STEPS[0].name} to {STEPS[-1].name}."
        )
    return found


def version(entries: dict[str, ledger.Entry]) -> int:
    """The schema version of a store: the number of the last step up to which every one is recorded."""
    reached = STEPS[0].number - 1
    for step in STEPS:
        if ledger.entry_of(entries, step) is None:
            break
        reached = step.number
    return reached


def _entries(path: Path, lock_timeout: timedelta, on_progress: Listener) -> dict[str, ledger.Entry] | None:
    """A first look, which refuses without opening the file for writing; None when recovery comes first."""
    try:
        with files.looking(path, lock_timeout) as connection:
            return opening.check(connection, str(path))
    except PgflowMigrateError:
        if not files.has_hot_journal(path):
            raise
        on_progress(Note(f"A journal lies beside {path}: what it holds is rolled back first."))
        return None


def _due(entries: dict[str, ledger.Entry], target: Step) -> list[Step]:
    return [step for step in up_to(target) if step.name not in entries]


def _migrate(store: Store, target: Step, before_first: Callable[[Step], None]) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config(str(resources.alembic_ini()), ini_section=SECTION)
    config.attributes.update(store=store, before_first=before_first)
    command.upgrade(config, target.revision)


def _result(
    path: str,
    before: dict[str, ledger.Entry],
    after: dict[str, ledger.Entry],
    now: int,
    listening: _Listening,
) -> Result:
    return Result(
        path=path,
        from_version=version(before),
        version=version(after),
        steps=tuple(listening.steps),
        already_current=not listening.steps,
        backup=listening.backup,
        now=now,
    )


@contextlib.contextmanager
def _telling_what_is_left(listening: _Listening) -> Iterator[None]:
    try:
        yield
    except PgflowMigrateError as error:
        error.details = (*error.details, *listening.left())
        raise
    except KeyboardInterrupt as interrupt:
        raise Interrupted(
            f"{str(interrupt) or 'Ctrl-C'} ended the upgrade; what was running was rolled back.",
            f"{' '.join(listening.left())} It is safe to repeat.",
        ) from interrupt
