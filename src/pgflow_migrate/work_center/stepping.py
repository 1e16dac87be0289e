"""One step at a time: its transaction, its line in the ledger, and what a failure means."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator

from pgflow_migrate.work_center import ledger
from pgflow_migrate.work_center.chain import Step
from pgflow_migrate.work_center.errors import StepFailed, StepRefused
from pgflow_migrate.work_center.javascript import JavaScriptTypeError
from pgflow_migrate.work_center.progress import StepDone, StepStarted
from pgflow_migrate.work_center.revision import Store
from pgflow_migrate.work_center.values import Refused


class Stepper:
    """Takes the steps that a plan names.

    Args:
        store: what they are taken on.
        of: how many there are to take.
        before_first: called with the first step, under its lock, before anything is written.
    """

    def __init__(self, store: Store, of: int, before_first: Callable[[Step], None]) -> None:
        self._store = store
        self._of = of
        self._taken = 0
        self._before_first: Callable[[Step], None] | None = before_first

    def take(self, step: Step, upgrade: Callable[[], None]) -> None:
        """Apply ``step`` by ``upgrade``, adopt it when its alias is recorded, pass over it when it is.

        In a transaction of its own, or within the one that the caller has open. When it fails, nothing of it
        is left, and what was before stays.

        Raises:
            StepRefused: it met a row or a structure that it must not pass.
            StepFailed: a statement failed.
            sqlite3.OperationalError: the store was locked.
        """
        connection = self._store.connection
        if step.name in ledger.read(connection):
            return
        self._taken += 1
        self._store.on_progress(StepStarted(step.name, self._taken, self._of))
        started = time.monotonic()
        self._store.step, self._store.rows = step.name, {}
        outcome = None
        try:
            with self._explained(step), _transaction(connection):
                outcome = self._apply(step, upgrade)
        except KeyboardInterrupt:
            # One that comes during the commit is too late: the step is done.
            if outcome is None or step.name not in ledger.read(connection):
                raise
            self._report(step, outcome, started)
            raise
        if outcome is not None:
            self._report(step, outcome, started)

    def _report(self, step: Step, outcome: str, started: float) -> None:
        seconds = time.monotonic() - started
        self._store.on_progress(StepDone(step.name, outcome, seconds, dict(self._store.rows)))

    def _apply(self, step: Step, upgrade: Callable[[], None]) -> str | None:
        connection = self._store.connection
        # Once more: before we had the lock, somebody else may have been quicker.
        entries = ledger.read(connection)
        ledger.refuse(entries)
        if step.name in entries:
            return None
        if self._before_first is not None:
            self._before_first(step)
            self._before_first = None
        connection.execute(ledger.CREATE)
        # The program has a temporary table of this name, and drops what stands in its way.
        connection.execute("drop table if exists main.migration_context")
        earlier = ledger.entry_of(entries, step)
        if earlier is not None:
            ledger.record(connection, step, earlier.applied_at or self._store.now)
            return "adopted"
        upgrade()
        ledger.record(connection, step, self._store.now)
        return "applied"

    @contextlib.contextmanager
    def _explained(self, step: Step) -> Iterator[None]:
        try:
            yield
        except (Refused, JavaScriptTypeError, sqlite3.IntegrityError) as error:
            raise StepRefused(
                step.name,
                " ".join(str(error).split()),
                "Nothing of it is left. Mend that in the store, and repeat.",
            ) from error
        except (sqlite3.Error, ValueError) as error:
            text = " ".join(str(error).split())
            if "locked" in text:
                raise
            raise StepFailed(step.name, text, "Nothing of it is left.") from error


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """A transaction that has the store's write lock from the start; in the caller's own, a savepoint."""
    if connection.in_transaction:
        begin, end = "savepoint work_center_step", ("release work_center_step",)
        back: tuple[str, ...] = ("rollback to work_center_step", "release work_center_step")
    else:
        begin, end, back = "begin immediate", ("commit",), ("rollback",)
    connection.execute(begin)
    try:
        yield
        for statement in end:
            connection.execute(statement)
    except BaseException:
        # SQLite itself rolls back on some errors, such as a full disk.
        if connection.in_transaction:
            with contextlib.suppress(sqlite3.OperationalError):  # the savepoint may be released already
                for statement in back:
                    connection.execute(statement)
        raise
