"""Where a database stands; read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from alembic.config import Config
from alembic.script import ScriptDirectory

from pgflow_migrate import database, resources
from pgflow_migrate.database import ServerInfo
from pgflow_migrate.releases import identify
from pgflow_migrate.upgrade import ledger, paused, recorder
from pgflow_migrate.upgrade.paused import PausedFunction


@dataclass(frozen=True)
class Status:
    """Where a database stands.

    Attributes:
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
        paused: worker functions that are paused; None when ``paused_grants`` are missing.
        paused_grants: the statements without which the role cannot read ``paused``.
    """

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
    paused: tuple[PausedFunction, ...] | None
    paused_grants: tuple[str, ...]


def read_status(dsn: str) -> Status:
    """Look at catalogue, ledger, version table and paused functions in one read-only snapshot.

    Raises:
        PgflowMigrateError: no connection.
    """
    with database.connect(dsn, read_only=True) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return _read(connection)


def _read(connection: psycopg.Connection[Any]) -> Status:
    connection.execute("set local search_path = pg_catalog, pg_temp")
    server = database.server_info(connection)
    found = identify.identify(connection)
    missing = ledger.missing_grants(connection)
    recorded = () if missing else ledger.entries(connection)
    versions = () if missing else ledger.versions(connection)
    script = ScriptDirectory.from_config(Config(str(resources.alembic_ini())))
    chain = recorder.chain(script)
    names = [entry.name for entry in recorded]
    changed = ledger.changed([entry for entry in recorded if entry.name in chain], ledger.checksums(chain))
    unknown = tuple(sorted({*versions, *names} - set(chain)))
    at = versions[0] if versions else found.revision
    disagreement = identify.disagreement(connection, versions, found)
    refused = bool(missing or changed or unknown or disagreement) or (at is None and not found.empty)
    pausable = paused.pausable(connection)
    paused_grants = paused.missing_grants(connection) if pausable else ()
    paused_functions = paused.read(connection) if pausable and not paused_grants else ()
    return Status(
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
        paused=None if paused_grants else paused_functions,
        paused_grants=paused_grants,
    )
