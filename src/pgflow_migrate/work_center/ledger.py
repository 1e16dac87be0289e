"""The store's own ledger: table schema_migrations, which the Work Center program keeps likewise.

It is the only record. Nothing of Alembic, and nothing else of ours, stays in a store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pgflow_migrate import ledger_rules
from pgflow_migrate.errors import BlockedError, PgflowMigrateError
from pgflow_migrate.work_center.chain import ALIASES, CHECKSUMS, STEPS, Step

# As the program makes it: the text stays in the store.
CREATE = """CREATE TABLE IF NOT EXISTS schema_migrations (
    name TEXT PRIMARY KEY,
    checksum TEXT NOT NULL,
    applied_at INTEGER NOT NULL
  )"""


@dataclass(frozen=True)
class Entry:
    """A line of the ledger.

    Attributes:
        name: a step's name or alias.
        checksum: what was recorded with it.
        applied_at: milliseconds since 1970; whatever the store holds, so not always a number.
    """

    name: str
    checksum: str
    applied_at: Any


def read(connection: sqlite3.Connection) -> dict[str, Entry]:
    """Every line by its name; none where there is no ledger.

    Raises:
        PgflowMigrateError: the store has a table of that name that is no ledger.
    """
    if not connection.execute(
        "select 1 from sqlite_master where type = 'table' and name = 'schema_migrations'"
    ).fetchone():
        return {}
    columns = {row[1] for row in connection.execute("pragma table_info(schema_migrations)")}
    if missing := sorted({"name", "checksum", "applied_at"} - columns):
        raise PgflowMigrateError(
            f"The store's table schema_migrations is no ledger: it has no column {missing[0]}.",
            "Check that this is a store of the Work Center program.",
        )
    found = connection.execute("select name, checksum, applied_at from schema_migrations order by rowid")
    return {
        str(name): Entry(str(name), str(recorded), applied_at)
        for name, recorded, applied_at in found.fetchall()
    }


def entry_of(entries: Mapping[str, Entry], step: Step) -> Entry | None:
    """The line of a step: under its name, else under its alias."""
    return entries.get(step.name) or entries.get(step.alias or "")


def refuse(entries: Mapping[str, Entry]) -> None:
    """Raise for a ledger that cannot be gone on from.

    Raises:
        PgflowMigrateError: it has a step that this installation does not have.
        BlockedError: a recorded checksum is not that of the step.
    """
    newer = unknown(entries)
    if newer:
        raise PgflowMigrateError(
            f'The store was upgraded by a newer program: it records the step "{newer[-1]}".',
            "Install the newest pgflow-migrate.",
        )
    names = ", ".join(f'"{name}"' for name in changed(entries))
    if names:
        raise BlockedError(
            f"The store was upgraded by another edition of step {names}: the recorded checksum differs.",
            "Ask who upgraded it; restore the backup from before, or go on with that program.",
        )


def unknown(entries: Mapping[str, Entry]) -> tuple[str, ...]:
    """The recorded names that this installation does not have."""
    return ledger_rules.unknown(entries, [step.name for step in STEPS], ALIASES)


def changed(entries: Mapping[str, Entry]) -> tuple[str, ...]:
    """The recorded names whose checksum is not the step's; an alias counts only where the name is not."""
    counted = [entry for step in STEPS if (entry := entry_of(entries, step)) is not None]
    return ledger_rules.changed([(entry.name, entry.checksum) for entry in counted], CHECKSUMS)


def record(connection: sqlite3.Connection, step: Step, applied_at: Any) -> None:
    """Write the line of a step, in the transaction that there is."""
    connection.execute(
        "insert into schema_migrations (name, checksum, applied_at) values (?, ?, ?)",
        (step.name, CHECKSUMS[step.name], applied_at),
    )
