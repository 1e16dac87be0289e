"""Where a database stands; read-only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, TypeVar

import psycopg
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg.rows import tuple_row

from pgflow_migrate import database, reading, resources
from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.database import ServerInfo
from pgflow_migrate.errors import LiveWorker, PgflowMigrateError
from pgflow_migrate.releases import identify
from pgflow_migrate.upgrade import activity, advice, ledger, paused, recorder
from pgflow_migrate.upgrade.activity import Queue, Timeout
from pgflow_migrate.upgrade.paused import PausedFunction

_Part = TypeVar("_Part")

_PATIENT = "set local lock_timeout = '1s'"
# An upgrade holds its locks for long, and a page that is looked at again and again must not queue behind it.
_BRIEF = "set local lock_timeout = '300ms'"
_NOW = "select to_char(now() at time zone 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US')"
_AUDITED = ("0.15.0", "0.15.1", "0.16.0")


@dataclass(frozen=True)
class AuditSummary:
    """An audit in numbers.

    Attributes:
        taken_at: when.
        errors: findings that block the upgrade.
        warnings: findings that do not, and want to be read.
        notes: the others.
        blocking: the codes of the errors.
        lost_tasks: live tasks that have no message in their queue; None where the role may not read what it
            takes to say.
    """

    taken_at: datetime
    errors: int
    warnings: int
    notes: int
    blocking: tuple[str, ...]
    lost_tasks: int | None = 0


@dataclass(frozen=True)
class Status:
    """Where a database stands.

    Attributes:
        taken_at: the time of the snapshot that was read, on the server's clock.
        server: the server, the role and its rights.
        release: the release that the catalogue has; None when there is no pgflow or no release matches.
        closest: the release with the fewest differences; None when there is no pgflow.
        differences: what differs from ``closest`` so that it is not that release, a sentence each.
        additions: what else differs and is of no consequence: the user's own objects and grants.
        missing_grants: the statements without which the role cannot read ``revision`` and ``ledger``, which
            then are None and empty.
        revision: the revision that the version table records, or None.
        ledger: the recorded revisions, oldest first.
        changed: recorded revisions whose files are no longer those that were applied.
        unknown: recorded revisions that only a newer pgflow-migrate has.
        disagreement: how ``revision`` and ``release`` contradict each other; None when they agree.
        pending: the revisions that an upgrade would apply; None when it would refuse to, or when
            the ledger cannot be read.
        upgrades: the server processes of upgrades that are running.
        workers: workers that have given a sign of life, by the upgrade's own rule; None when they were not
            to be read.
        paused: worker functions that are paused; None when ``paused_grants`` are missing, or when they were
            not to be read.
        paused_grants: the statements without which the role cannot read ``paused``.
        queues: the queues of flows and steps; None when they were not to be read.
        activity_grants: the statements without which the role cannot read ``workers`` and ``queues``.
        audit: a summary of the audit; None when it does not apply or could not be made.
        audit_applies: whether the audit has something to look for: before queue identity.
        timeouts: the server's time limits for the role's ordinary statements. The upgrade lifts them within
            its transaction.
        unread: why something was not to be read, a sentence each.
        next: what to do next, a sentence each.
    """

    taken_at: datetime
    server: ServerInfo
    release: str | None
    closest: str | None
    differences: tuple[str, ...]
    additions: tuple[str, ...]
    missing_grants: tuple[str, ...]
    revision: str | None
    ledger: tuple[ledger.Entry, ...]
    changed: tuple[str, ...]
    unknown: tuple[str, ...]
    disagreement: str | None
    pending: tuple[str, ...] | None
    upgrades: tuple[int, ...]
    workers: tuple[LiveWorker, ...] | None
    paused: tuple[PausedFunction, ...] | None
    paused_grants: tuple[str, ...]
    queues: tuple[Queue, ...] | None
    activity_grants: tuple[str, ...]
    audit: AuditSummary | None
    audit_applies: bool
    timeouts: tuple[Timeout, ...]
    unread: tuple[str, ...]
    next: tuple[str, ...]


def read_status(dsn: str, *, audited: AuditSummary | None = None) -> Status:
    """Look at catalogue, ledger, version table and what goes on, in one read-only snapshot; then audit.

    Queues, workers and functions that somebody else has locked are passed over after 0.3 s, and told in
    ``unread``.

    Args:
        dsn: a connection string in any spelling.
        audited: a summary to show instead of auditing again, which takes seconds where there are millions of
            tasks.

    Raises:
        PgflowMigrateError: no connection, or the server ended it; or the catalogue cannot be read, because
            an upgrade has locked what it describes.
    """
    with database.connect(dsn, read_only=True) as connection, reading.explained("status"):
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        try:
            found = _read(connection)
        except psycopg.errors.LockNotAvailable as error:
            connection.rollback()
            raise _locked(activity.upgrades(connection)) from error
        connection.rollback()
        if found.audit_applies and not found.upgrades:
            found = replace(found, audit=audited) if audited is not None else _audited(connection, found)
        return replace(found, next=advice.advice(found))


def _locked(upgrades: tuple[int, ...]) -> PgflowMigrateError:
    if upgrades:
        return PgflowMigrateError(
            f"An upgrade is running (pid {upgrades[0]}), and has locked schema pgflow.",
            "Look again when it has ended.",
        )
    return PgflowMigrateError(
        "Another session has locked schema pgflow, or pgflow-migrate's own.", "Look again when it has ended."
    )


def _audited(connection: psycopg.Connection[Any], found: Status) -> Status:
    try:
        report = run_audit(connection)
    except PgflowMigrateError as error:
        if connection.closed:
            raise
        return replace(found, unread=(*found.unread, error.message))
    summary = AuditSummary(
        taken_at=report.taken_at,
        errors=len(report.blocking),
        warnings=len(report.of("warning")),
        notes=len(report.of("info")),
        blocking=tuple(sorted({finding.code for finding in report.blocking})),
        lost_tasks=None if report.lost is None else report.lost_tasks,
    )
    return replace(found, audit=summary)


class _Parts:
    """Reads what others may have locked, each part in a savepoint."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection
        self.unread: list[str] = []

    def read(self, what: str, read: Callable[[psycopg.Connection[Any]], _Part]) -> _Part | None:
        """The part, or None and a sentence in ``unread``."""
        try:
            with self._connection.transaction():
                return read(self._connection)
        except psycopg.errors.LockNotAvailable:
            self.unread.append(
                f"{what} could not be read: another session has locked them, an upgrade perhaps."
            )
        except psycopg.Error as error:
            if self._connection.closed:
                raise
            text = " ".join((error.diag.message_primary or str(error)).split()).rstrip(".")
            self.unread.append(f"{what} could not be read: {text}.")
        return None


def _read(connection: psycopg.Connection[Any]) -> Status:
    connection.execute("set local search_path = pg_catalog, pg_temp")
    timeouts = activity.timeouts(connection)
    connection.execute(_PATIENT)
    server = database.server_info(connection)
    found = identify.identify(connection)
    missing = ledger.missing_grants(connection)
    recorded = () if missing else ledger.entries(connection)
    versions = () if missing else ledger.versions(connection)
    script = ScriptDirectory.from_config(Config(str(resources.alembic_ini())))
    chain = recorder.chain(script)
    # Those of one transaction are equally old.
    place = {name: number for number, name in enumerate(chain)}
    recorded = tuple(
        sorted(recorded, key=lambda entry: (entry.applied_at, place.get(entry.name, len(place))))
    )
    names = [entry.name for entry in recorded]
    changed = ledger.changed([entry for entry in recorded if entry.name in chain], ledger.checksums(chain))
    unknown = tuple(sorted({*versions, *names} - set(chain)))
    at = versions[0] if versions else found.revision
    disagreement = identify.disagreement(connection, versions, found)
    refused = bool(missing or changed or unknown or disagreement) or (at is None and not found.empty)
    pausable = paused.pausable(connection)
    paused_grants = paused.missing_grants(connection) if pausable else ()
    activity_grants = activity.missing_grants(connection)
    at_work = not activity_grants and not found.empty
    connection.execute(_BRIEF)
    parts = _Parts(connection)
    paused_functions = parts.read("Paused functions", paused.read) if pausable and not paused_grants else ()
    workers = parts.read("Workers", activity.workers) if at_work else None
    queues = parts.read("Queues", activity.queues) if at_work else None
    taken_at = connection.cursor(row_factory=tuple_row).execute(_NOW).fetchall()[0][0]
    return Status(
        taken_at=datetime.fromisoformat(taken_at).replace(tzinfo=timezone.utc),
        server=server,
        release=found.release,
        closest=found.closest,
        differences=tuple(str(difference) for difference in found.differences if difference.matters),
        additions=tuple(str(difference) for difference in found.differences if not difference.matters),
        missing_grants=missing,
        revision=versions[0] if versions else None,
        ledger=recorded,
        changed=changed,
        unknown=unknown,
        disagreement=disagreement.message if disagreement else None,
        pending=None if refused else tuple(chain[chain.index(at) + 1 if at else 0 :]),
        upgrades=activity.upgrades(connection),
        workers=workers,
        paused=None if paused_grants else paused_functions,
        paused_grants=paused_grants,
        queues=queues,
        activity_grants=activity_grants,
        audit=None,
        audit_applies=found.closest in _AUDITED,
        timeouts=timeouts,
        unread=tuple(parts.unread),
        next=(),
    )
