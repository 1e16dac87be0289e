"""The upgrade: all revisions in one transaction, or nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import psycopg
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from pgflow_migrate import database, resources
from pgflow_migrate.errors import Interrupted, PgflowMigrateError
from pgflow_migrate.upgrade import failures
from pgflow_migrate.upgrade.progress import Event, FileDone, Found, Listener, RevisionApplied, ignore
from pgflow_migrate.upgrade.session import Fence

_FENCE = "fence.sql"
_PATIENCE = 5.0  # seconds to find out what became of a COMMIT


@dataclass(frozen=True)
class Applied:
    """A revision that was applied, and how long that took in seconds."""

    revision: str
    seconds: float


@dataclass(frozen=True)
class Backfilled:
    """How many rows got their queue's name."""

    steps: int
    tasks: int


@dataclass(frozen=True)
class UpgradeResult:
    """What an upgrade did, or, as a dry run, did and took back.

    Attributes:
        from_release: the release before, such as ``0.16.0``; None where there was no pgflow.
        revision: where the database is now; None where a target below everything was given.
        applied: the revisions that ran, in order.
        already_current: whether there was nothing to do.
        backfilled: the rows that queue_identity gave a queue, or None when it did not run.
        locked_seconds: how long others were locked out: from the last lock of the fence to the end of the
            transaction; None when there was no fence.
        dry_run: whether it was rolled back.
    """

    from_release: str | None
    revision: str | None
    applied: tuple[Applied, ...]
    already_current: bool
    backfilled: Backfilled | None
    locked_seconds: float | None
    dry_run: bool


class _Listening:
    """Passes events on and keeps those that the result is made of."""

    def __init__(self, on_progress: Listener) -> None:
        self._on_progress = on_progress
        self.found = Found(None, None, recorded=False)
        self.applied: list[Applied] = []
        self.locked_at: float | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, Found):
            self.found = event
        elif isinstance(event, RevisionApplied):
            self.applied.append(Applied(event.revision, event.seconds))
        elif isinstance(event, FileDone) and event.file == _FENCE and self.locked_at is None:
            self.locked_at = time.monotonic()
        self._on_progress(event)


def upgrade(
    dsn: str,
    target: str = "head",
    *,
    fence: Fence = Fence(),  # noqa: B008 - frozen
    from_nothing: bool = True,
    dry_run: bool = False,
    on_progress: Listener = ignore,
) -> UpgradeResult:
    """Take a database of any known release, or one without pgflow, up to ``target``, in one transaction.

    Args:
        dsn: a connection string in any spelling.
        target: a revision as Alembic names them.
        fence: how it gets its locks, and whether live workers stop it.
        from_nothing: whether a database without pgflow gets it; else that is an error.
        dry_run: do all of it, locks included, and roll back instead of committing.
        on_progress: called with each :data:`~pgflow_migrate.upgrade.progress.Event`, in this thread.

    Raises:
        BlockedError: the preflight found what must be mended first, workers are at work, or an applied
            revision was changed.
        FenceError: the locks were not obtained in time.
        PgflowMigrateError: it could not run: connection, rights, an unknown release, a failing statement.
        Interrupted: a KeyboardInterrupt came, and what was running has been cancelled.

    After each of them the database is as it was before. (An interrupt during the COMMIT itself comes too late
    when the server has committed: then there is a result.)
    """
    listening = _Listening(on_progress)
    engine = database.engine(dsn)
    try:
        with failures.explained(dsn, fence), engine.connect() as connection:
            result = _migrate(connection, target, fence, listening, from_nothing=from_nothing)
            if dry_run:
                connection.rollback()
            else:
                _commit(connection, dsn)
            locked = None if listening.locked_at is None else time.monotonic() - listening.locked_at
            return replace(result, locked_seconds=locked, dry_run=dry_run)
    except KeyboardInterrupt as interrupt:
        raise Interrupted(
            f"{_who(interrupt)} ended the upgrade; what was running was cancelled and rolled back.",
            f"{failures.UNCHANGED} It is safe to repeat.",
        ) from interrupt
    finally:
        engine.dispose()


def _migrate(
    connection: sa.Connection,
    target: str,
    fence: Fence,
    listening: _Listening,
    *,
    from_nothing: bool,
) -> UpgradeResult:
    config = Config(str(resources.alembic_ini()))
    config.attributes.update(
        connection=connection, fence=fence, on_progress=listening, from_nothing=from_nothing
    )
    command.upgrade(config, target)
    applied = tuple(listening.applied)
    backfills = any(one.revision == "queue_identity" for one in applied)
    return UpgradeResult(
        from_release=listening.found.release,
        revision=applied[-1].revision if applied else listening.found.revision,
        applied=applied,
        already_current=not applied,
        backfilled=_backfilled(connection) if backfills else None,
        locked_seconds=None,
        dry_run=False,
    )


def _backfilled(connection: sa.Connection) -> Backfilled:
    counts = "select (select count(*) from pgflow.steps), (select count(*) from pgflow.step_tasks)"
    steps, tasks = connection.exec_driver_sql(counts).one()
    return Backfilled(steps, tasks)


def _commit(connection: sa.Connection, dsn: str) -> None:
    """Commit; when the answer is lost or an interrupt comes in between, find out what became of it."""
    transaction = connection.exec_driver_sql("select pg_catalog.txid_current_if_assigned()").scalar()
    try:
        connection.commit()
    except (KeyboardInterrupt, sa.exc.DBAPIError, psycopg.Error) as error:
        outcome = _outcome(dsn, transaction)
        if outcome == "committed":
            return
        if outcome != "aborted":
            raise PgflowMigrateError(
                "The connection was lost during COMMIT, and whether it took effect could not be found out.",
                "Run pgflow-migrate status: the upgrade is there as a whole or not at all.",
            ) from error
        raise


def _outcome(dsn: str, transaction: int | None) -> str:
    """``committed``, ``aborted`` or ``unknown``. A transaction without an id has changed nothing."""
    if transaction is None:
        return "aborted"
    give_up_at = time.monotonic() + _PATIENCE
    try:
        with database.connect(dsn, read_only=True, autocommit=True) as connection:
            while True:
                row = connection.execute("select pg_catalog.txid_status(%s)", (transaction,)).fetchone()
                if row is None or row[0] != "in progress":
                    return str(row[0]) if row else "unknown"
                # The server has not come to our COMMIT yet, or not to the end of our connection.
                if time.monotonic() > give_up_at:
                    return "unknown"
                time.sleep(0.05)
    except (psycopg.Error, PgflowMigrateError):
        return "unknown"


def _who(interrupt: KeyboardInterrupt) -> str:
    return str(interrupt) or "Ctrl-C"
