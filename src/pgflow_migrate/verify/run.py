"""Running the verification: one read-only transaction on one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psycopg
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg.rows import dict_row

from pgflow_migrate import database, reading, resources
from pgflow_migrate.audit.script import SETTINGS
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.releases import catalogue, identify
from pgflow_migrate.releases.catalogue import Catalogue
from pgflow_migrate.upgrade import ledger, recorder
from pgflow_migrate.verify.checks import CHECKS
from pgflow_migrate.verify.record import catalogue_violations, record_violations
from pgflow_migrate.verify.rights import missing_rights
from pgflow_migrate.verify.violations import Looked, Verification, Violation

_REVISION = "queue_identity"
_OPERATION = Path(__file__).with_name("operation.sql")

# What the SQL reads. A database that lacks any of it cannot be judged.
_READ = {
    "flows": ("flow_slug", "created_at"),
    "steps": ("flow_slug", "step_slug", "queue_name"),
    "runs": ("run_id", "flow_slug", "status"),
    "step_states": ("run_id", "step_slug", "status"),
    "step_tasks": (
        "flow_slug",
        "run_id",
        "step_slug",
        "task_index",
        "status",
        "message_id",
        "queue_name",
        "permanently_stalled_at",
    ),
}

_PGMQ = """
select count(*) as columns
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_attribute a on a.attrelid = c.oid and not a.attisdropped
where n.nspname = 'pgmq' and c.relname = 'meta' and c.relkind = 'r'
  and a.attname in ('queue_name', 'is_partitioned', 'is_unlogged', 'created_at')
"""

# The time as text, because psycopg reads timestamps in one DateStyle only.
_FACTS = """
select current_database()::text as database, split_part(current_setting('server_version'), ' ', 1) as server,
  to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') as taken_at,
  (select count(*) from pgflow.flows) as flows, (select count(*) from pgflow.steps) as steps,
  (select count(*) from pgflow.step_tasks) as tasks
"""


def verify(dsn: str) -> Verification:
    """Check every invariant of an upgraded database, in one snapshot; changes nothing.

    Args:
        dsn: a connection string in any spelling.

    Raises:
        PgflowMigrateError: it could not look: no connection, a database that is not upgraded or by a newer
            pgflow-migrate, rights that are missing, or the server ended it (a timeout, a lock held for long).
    """
    with database.connect(dsn, read_only=True) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with reading.explained("verification"):
            connection.execute(SETTINGS.encode())
            return _verify(connection)


def _verify(connection: psycopg.Connection[Any]) -> Verification:
    chain = recorder.chain(ScriptDirectory.from_config(Config(str(resources.alembic_ini()))))
    found = catalogue.read(connection)
    grants = ledger.missing_grants(connection)
    versions = () if grants else ledger.versions(connection)
    recorded = () if grants else ledger.entries(connection)
    ledger.refuse_newer([*versions, *(entry.name for entry in recorded)], chain)
    _refuse_other(connection, found, versions)
    _refuse_blind(connection)

    violations = [
        *record_violations(chain, versions, recorded),
        *catalogue_violations(found, chain[-1]),
        *_rows(connection, resources.revision_sql(_REVISION) / "invariants.sql"),
        *_rows(connection, _OPERATION),
    ]
    cursor = connection.cursor(row_factory=dict_row)
    facts = cursor.execute(_FACTS.encode()).fetchall()[0]
    places = {name: place for place, name in enumerate(CHECKS)}
    return Verification(
        violations=tuple(sorted(violations, key=lambda violation: places[violation.check])),
        looked_at=Looked(facts["flows"], facts["steps"], facts["tasks"]),
        database=facts["database"],
        server=facts["server"],
        taken_at=datetime.fromisoformat(facts["taken_at"]).replace(tzinfo=timezone.utc),
    )


def _refuse_other(connection: psycopg.Connection[Any], found: Catalogue, versions: Sequence[str]) -> None:
    """Raise unless this is a database with queue identity, as far as it takes to judge it.

    Raises:
        PgflowMigrateError: says what it is.
    """
    wanted = {f"column {table}.{column}" for table, columns in _READ.items() for column in columns}
    readable = wanted <= found.objects.keys()
    if readable and _REVISION in versions:
        return
    identified = identify.identify(connection)
    if identified.empty:
        raise PgflowMigrateError(
            "There is no schema pgflow in this database.", "Check the connection string."
        )
    if readable and identified.closest == _REVISION:
        return
    if _REVISION in versions:
        missing = sorted(wanted - found.objects.keys())
        raise PgflowMigrateError(
            f'The database records revision "{_REVISION}", but what that is verified by is missing.',
            "Restore it from a backup; pgflow-migrate status names everything that differs.",
            tuple(f"{name} is missing" for name in missing),
        )
    is_ = identified.release or f"of no known release, the closest is {identified.closest}"
    raise PgflowMigrateError(
        f"This database is not upgraded: schema pgflow is {is_}.",
        "To see what stands in the way of the upgrade: pgflow-migrate audit",
    )


def _refuse_blind(connection: psycopg.Connection[Any]) -> None:
    """Raise unless everything is there to be seen, and may be.

    Raises:
        PgflowMigrateError: names what is missing.
    """
    if connection.cursor(row_factory=dict_row).execute(_PGMQ.encode()).fetchall()[0]["columns"] != 4:
        raise PgflowMigrateError(
            "There is no usable table pgmq.meta in this database.",
            "Restore PGMQ, or check the connection string.",
        )
    statements = missing_rights(connection)
    if statements:
        raise PgflowMigrateError(
            "The role may not see all that has to be verified.", "What it needs is above.", statements
        )


def _rows(connection: psycopg.Connection[Any], path: Path) -> Iterator[Violation]:
    cursor = connection.cursor(row_factory=dict_row)
    cursor.execute(path.read_text(encoding="utf-8").encode())
    for row in cursor.execute("fetch all from pgflow_migrate_violations").fetchall():
        yield Violation.from_row(row)
    cursor.execute("close pgflow_migrate_violations")
