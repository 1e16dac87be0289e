"""Running the verification: one read-only transaction on one snapshot."""

from __future__ import annotations

import itertools
import re
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

_OPERATION = Path(__file__).with_name("operation.sql")

_LIMIT = re.compile(r"(sample_limit constant integer := )20;")

# What the SQL of each revision reads beyond that of the one before, the oldest first. A database that lacks
# any of the first cannot be judged.
_READ = {
    "queue_identity": {
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
    },
    "dirty_runs": {
        "step_tasks": ("current_claim_id",),
        "run_work": ("run_id", "flow_slug"),
        "task_claims": (
            "claim_id",
            "run_id",
            "step_slug",
            "task_index",
            "queue_name",
            "message_id",
            "state",
        ),
    },
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


def verify(dsn: str, *, samples: int = 20) -> Verification:
    """Check every invariant of an upgraded database, in one snapshot; changes nothing.

    Args:
        dsn: a connection string in any spelling.
        samples: how many of what breaks an invariant are named at most.

    Raises:
        PgflowMigrateError: it could not look: no connection, a database that is not upgraded or by a newer
            pgflow-migrate, rights that are missing, or the server ended it (a timeout, a lock held for long).
    """
    with database.connect(dsn, read_only=True) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        with reading.explained("verification"):
            connection.execute(SETTINGS.encode())
            return _verify(connection, samples)


def _verify(connection: psycopg.Connection[Any], samples: int) -> Verification:
    chain = recorder.chain(ScriptDirectory.from_config(Config(str(resources.alembic_ini()))))
    found = catalogue.read(connection)
    grants = ledger.missing_grants(connection)
    versions = () if grants else ledger.versions(connection)
    recorded = () if grants else ledger.entries(connection)
    ledger.refuse_newer([*versions, *(entry.name for entry in recorded)], chain)
    revision = _revision(connection, found, versions)
    _refuse_blind(connection)

    violations = [
        *record_violations(chain[: chain.index(revision) + 1], versions, recorded),
        *catalogue_violations(found, revision),
        *itertools.chain.from_iterable(
            _rows(connection, resources.revision_sql(name) / "invariants.sql", samples)
            for name in _up_to(revision)
        ),
        *_rows(connection, _OPERATION, samples),
    ]
    cursor = connection.cursor(row_factory=dict_row)
    facts = cursor.execute(_FACTS.encode()).fetchall()[0]
    places = {name: place for place, name in enumerate(CHECKS)}
    return Verification(
        violations=tuple(sorted(violations, key=lambda violation: places[violation.check])),
        looked_at=Looked(facts["flows"], facts["steps"], facts["tasks"]),
        revision=revision,
        database=facts["database"],
        server=facts["server"],
        taken_at=datetime.fromisoformat(facts["taken_at"]).replace(tzinfo=timezone.utc),
    )


def _revision(connection: psycopg.Connection[Any], found: Catalogue, versions: Sequence[str]) -> str:
    """The revision that the catalogue has, as far as it takes to judge it.

    Raises:
        PgflowMigrateError: it has none that can be judged; says what it is.
    """
    readable = [revision for revision in _READ if _wanted(revision) <= found.objects.keys()]
    recorded = [revision for revision in _READ if revision in versions]
    if readable and recorded and recorded[-1] in _up_to(readable[-1]):
        return readable[-1]
    identified = identify.identify(connection)
    if identified.empty:
        raise PgflowMigrateError(
            "There is no schema pgflow in this database.", "Check the connection string."
        )
    if recorded:
        missing = sorted(_wanted(recorded[-1]) - found.objects.keys())
        raise PgflowMigrateError(
            f'The database records revision "{recorded[-1]}", but what that is verified by is missing.',
            "Restore it from a backup; pgflow-migrate status names everything that differs.",
            tuple(f"{name} is missing" for name in missing),
        )
    if readable and identified.closest in _READ:
        return readable[-1]
    is_ = identified.release or f"of no known release, the closest is {identified.closest}"
    raise PgflowMigrateError(
        f"This database is not upgraded: schema pgflow is {is_}.",
        "To see what stands in the way of the upgrade: pgflow-migrate audit",
    )


def _up_to(revision: str) -> list[str]:
    """The revisions whose invariants hold at ``revision``."""
    return list(_READ)[: list(_READ).index(revision) + 1]


def _wanted(revision: str) -> set[str]:
    """The columns that the SQL of ``revision`` reads, as the catalogue names them."""
    return {
        f"column {table}.{column}"
        for name in _up_to(revision)
        for table, columns in _READ[name].items()
        for column in columns
    }


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


def _rows(connection: psycopg.Connection[Any], path: Path, samples: int) -> Iterator[Violation]:
    cursor = connection.cursor(row_factory=dict_row)
    block = _LIMIT.sub(rf"\g<1>{samples:d};", path.read_text(encoding="utf-8"), count=1)
    cursor.execute(block.encode())
    for row in cursor.execute("fetch all from pgflow_migrate_violations").fetchall():
        yield Violation.from_row(row)
    cursor.execute("close pgflow_migrate_violations")
