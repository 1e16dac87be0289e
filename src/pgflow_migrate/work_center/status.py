"""Where a store stands; looking at it changes nothing."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgflow_migrate.work_center import engine_turns, ledger
from pgflow_migrate.work_center import store as files
from pgflow_migrate.work_center.chain import CHECKSUMS, STEPS, Step
from pgflow_migrate.work_center.upgrade import version

__all__ = ["Status", "StepStatus", "status"]

TABLES = (
    *files.TABLES,
    "conversations",
    "conversation_entries",
    "action_entries",
    "engine_turns",
    "operations",
    "coordinator_mailbox_entries",
    "coordinator_provider_turns",
)
"""The tables that steps read or make."""


@dataclass(frozen=True)
class StepStatus:
    """A step, and what the ledger says of it.

    Attributes:
        step: its name.
        state: ``recorded``; ``adopted``: so, and under its earlier name too; ``under its earlier name``: an
            upgrade adopts it; ``missing``: an upgrade applies it.
        applied_at: milliseconds since 1970, as recorded; None where nothing is.
        checksum: whether the recorded one is the step's; None where nothing is recorded.
    """

    step: str
    state: str
    applied_at: Any
    checksum: bool | None


@dataclass(frozen=True)
class Status:
    """What was found.

    Attributes:
        path: the store.
        size: in bytes, without its write-ahead log.
        version: the schema version: the number of the last step up to which all are recorded, or 22.
        steps: every step of the chain.
        unknown: recorded names that this installation does not have: a newer program's.
        contract: whether engine_turns has the status contract; None where there is no such table.
        rows: how many rows each table of :data:`TABLES` has that is there.
        journal_mode: ``delete``, ``wal`` and so on.
        problems: what ``pragma quick_check`` says; empty when all is well.
    """

    path: str
    size: int
    version: int
    steps: tuple[StepStatus, ...]
    unknown: tuple[str, ...]
    contract: bool | None
    rows: dict[str, int]
    journal_mode: str
    problems: tuple[str, ...]

    @property
    def pending(self) -> tuple[str, ...]:
        """The steps that an upgrade would apply or adopt."""
        return tuple(found.step for found in self.steps if found.state not in ("recorded", "adopted"))


def status(path: str | Path) -> Status:
    """Look at a store; changes nothing.

    Args:
        path: the store's file.

    Raises:
        FenceError: another connection keeps it to itself.
        PgflowMigrateError: it cannot be read, or is no store.
    """
    path = Path(path)
    with files.looking(path) as connection:
        files.require_tables(connection, str(path))
        entries = ledger.read(connection)
        tables = {
            name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")
        }
        return Status(
            path=str(path),
            size=path.stat().st_size,
            version=version(entries),
            steps=tuple(_step(entries, step) for step in STEPS),
            unknown=ledger.unknown(entries),
            contract=engine_turns.has_contract(connection) if "engine_turns" in tables else None,
            rows={table: _count(connection, table) for table in TABLES if table in tables},
            journal_mode=str(connection.execute("pragma journal_mode").fetchone()[0]),
            problems=problems(connection, "quick_check"),
        )


def problems(connection: sqlite3.Connection, check: str) -> tuple[str, ...]:
    """What SQLite's ``quick_check`` or ``integrity_check`` finds."""
    try:
        found = tuple(str(line) for (line,) in connection.execute(f"pragma {check}"))
    except sqlite3.DatabaseError as error:
        if "malformed" not in str(error):
            raise
        return (str(error),)
    return () if found == ("ok",) else found


def _step(entries: dict[str, ledger.Entry], step: Step) -> StepStatus:
    entry = ledger.entry_of(entries, step)
    if entry is None:
        return StepStatus(step.name, "missing", None, None)
    if entry.name != step.name:
        state = "under its earlier name"
    else:
        state = "adopted" if step.alias in entries else "recorded"
    at = entry.applied_at if isinstance(entry.applied_at, (int, float, str)) else str(entry.applied_at)
    return StepStatus(step.name, state, at, entry.checksum == CHECKSUMS[entry.name])


def _count(connection: sqlite3.Connection, table: str) -> int:
    return int(connection.execute(f"select count(*) from {table}").fetchone()[0])  # noqa: S608
