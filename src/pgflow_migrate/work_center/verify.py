"""Whether a store keeps what its recorded steps promise; looking changes nothing."""

from __future__ import annotations

import hashlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.verify.violations import Violation
from pgflow_migrate.work_center import engine_turns, ledger, structure
from pgflow_migrate.work_center import store as files
from pgflow_migrate.work_center.chain import STEPS
from pgflow_migrate.work_center.status import problems
from pgflow_migrate.work_center.upgrade import version

__all__ = ["CHECKS", "Verification", "verify"]

_SAMPLES = 20
_RESTORE = "Restore the backup from before the upgrade."


@dataclass(frozen=True)
class Invariant:
    """What must hold once a step is recorded; ``query`` finds the keys of the rows that break it.

    Attributes:
        name: of the check.
        title: what holds, a clause.
        step: the number of the step that makes it so.
        query: its parameter ``:at`` is when that step was applied: later rows are the program's own matter.
    """

    name: str
    title: str
    step: int
    query: str


INVARIANTS = (
    Invariant(
        "run-ordinals",
        "every run has a number within its action",
        28,
        "select id from runs where started_at <= :at and ordinal is null",
    ),
    Invariant(
        "terminal-identity",
        "every run that has ended says with which status and when",
        28,
        """
        select id from runs
        where started_at <= :at and status != 'running' and (terminal_status is null or terminal_at is null)
        """,
    ),
    Invariant(
        "conversations",
        "every work item has a conversation",
        30,
        """
        select id from work_items w where created_at <= :at
          and not exists (select 1 from conversations c where c.work_item_id = w.id)
        """,
    ),
    Invariant(
        "conversation-entries",
        "an entry belongs to the work item that its conversation belongs to",
        30,
        """
        select e.id from conversation_entries e join conversations c on c.id = e.conversation_id
        where c.work_item_id is not e.work_item_id
        """,
    ),
    Invariant(
        "inputs",
        "every pending input and every event with an input has its entry",
        30,
        """
        with taken as (select substr(source_key, instr(source_key, ':') + 1) as source from action_entries)
        select e.id from events e join actions a on a.id = e.action_id
        where e.created_at <= :at and e.type = 'action.input_added' and typeof(e.id) = 'integer'
          and 'events:' || e.id not in (select source from taken)
          and 'pending_action_inputs:' || e.id not in (select source from taken)
        union
        select p.event_id from pending_action_inputs p
        join events e on e.id = p.event_id join actions a on a.id = p.action_id
        where e.created_at <= :at and typeof(p.event_id) = 'integer'
          and 'events:' || p.event_id not in (select source from taken)
          and 'pending_action_inputs:' || p.event_id not in (select source from taken)
        """,
    ),
    Invariant(
        "legacy-ids",
        "the id of what was backfilled is that of its source key",
        30,
        """
        select id from conversation_entries
        where id glob 'legacy-conversation-*' and id is not legacy_id('legacy-conversation-', source_key)
        union all
        select id from action_entries
        where id glob 'legacy-action-entry-*' and id is not legacy_id('legacy-action-entry-', source_key)
        union all
        select id from engine_turns
        where id glob 'legacy-engine-turn-*' and id is not legacy_id('legacy-engine-turn-', request_key)
        """,
    ),
    Invariant(
        "engine-turns",
        "the turn that an entry of a run names is there",
        30,
        """
        select e.id from action_entries e
        where e.run_id is not null and e.engine_turn_id is not null
          and not exists (select 1 from engine_turns t where t.id = e.engine_turn_id)
        """,
    ),
)

CHECKS = {
    "ledger": "the steps are recorded in order, without a gap, with their checksums",
    "structure": "tables, columns, checks, keys, indexes and triggers are those of the recorded steps",
    "contract": "engine_turns has the status contract and all that belongs to it",
    "integrity": "SQLite finds the file in order",
    "foreign-keys": "every reference leads to a row",
    **{invariant.name: invariant.title for invariant in INVARIANTS},
}
"""Every check by name, and what it says holds."""


@dataclass(frozen=True)
class Verification:
    """What was found.

    Attributes:
        path: the store.
        version: its schema version.
        violations: in the order of :data:`CHECKS`.
    """

    path: str
    version: int
    violations: tuple[Violation, ...]


def verify(
    path: str | Path, *, on_check: Callable[[str, int, int], None] = lambda name, number, of: None
) -> Verification:
    """Look whether a store keeps what its recorded steps promise.

    Args:
        path: the store's file.
        on_check: called before each check: its name, its number from 1, and how many there are.

    Raises:
        FenceError: another connection keeps it to itself.
        PgflowMigrateError: it cannot be read, is no store, or a newer one.
    """
    path = Path(path)
    with files.looking(path) as connection:
        files.require_tables(connection, str(path))
        entries = ledger.read(connection)
        if newer := ledger.unknown(entries):
            raise PgflowMigrateError(
                f'The store was upgraded by a newer program: it records the step "{newer[-1]}".',
                "Install the newest pgflow-migrate.",
            )
        connection.create_function("legacy_id", 2, _legacy_id, deterministic=True)
        return Verification(str(path), version(entries), tuple(_violations(connection, entries, on_check)))


def _violations(
    connection: sqlite3.Connection,
    entries: dict[str, ledger.Entry],
    on_check: Callable[[str, int, int], None],
) -> Iterator[Violation]:
    recorded = {step.name for step in STEPS if ledger.entry_of(entries, step) is not None}
    # Generators: nothing is looked at before its turn.
    looks = {
        "ledger": _ledger(entries),
        "structure": _structure(connection, recorded),
        "contract": _contract(connection, recorded),
        "integrity": _integrity(connection),
        "foreign-keys": _foreign_keys(connection),
        **{invariant.name: _invariant(connection, entries, invariant) for invariant in INVARIANTS},
    }
    for number, (name, found) in enumerate(looks.items(), 1):
        on_check(name, number, len(looks))
        yield from found


def _contract(connection: sqlite3.Connection, recorded: set[str]) -> Iterator[Violation]:
    if "34-engine-turn-status-repair" in recorded and (lacking := engine_turns.missing(connection)):
        yield Violation("contract", "table engine_turns", 1, (lacking,), _RESTORE)


def _integrity(connection: sqlite3.Connection) -> Iterator[Violation]:
    if found := problems(connection, "integrity_check"):
        yield _violation("integrity", "the file", found, _RESTORE)


def _invariant(
    connection: sqlite3.Connection, entries: dict[str, ledger.Entry], invariant: Invariant
) -> Iterator[Violation]:
    (step,) = (step for step in STEPS if step.number == invariant.step)
    entry = ledger.entry_of(entries, step)
    if entry is not None:
        yield from _broken(connection, invariant, entry.applied_at)


def _ledger(entries: dict[str, ledger.Entry]) -> Iterator[Violation]:
    places = [place for place, step in enumerate(STEPS) if ledger.entry_of(entries, step) is not None]
    gaps = tuple(STEPS[place].name for place in range(places[-1] if places else 0) if place not in places)
    if gaps:
        yield _violation("ledger", "not recorded", gaps, "pgflow-migrate work-center upgrade applies them.")
    if changed := ledger.changed(entries):
        yield _violation(
            "ledger", "another checksum", changed, "Another edition of these steps was applied; ask whose."
        )


def _structure(connection: sqlite3.Connection, recorded: set[str]) -> Iterator[Violation]:
    """What differs. Until it is rebuilt by step 32, engine_turns may be of an older shape."""
    here, wanted = structure.facts(connection), {}
    for step, made in structure.expected().items():
        if step in recorded:
            wanted.update(made)
    if "32-engine-turn-status-contract" not in recorded:
        wanted = {name: fact for name, fact in wanted.items() if " engine_turns" not in name}
    wrong = tuple(
        f"{name} is missing" if name not in here else f"{name} is {here[name]}, not {fact}"
        for name, fact in wanted.items()
        if here.get(name) != fact
    )
    if wrong:
        yield _violation("structure", "the store", wrong, _RESTORE)


def _foreign_keys(connection: sqlite3.Connection) -> Iterator[Violation]:
    try:
        found = connection.execute("pragma foreign_key_check").fetchall()
    except sqlite3.OperationalError as error:  # a key that refers to what is not unique
        yield Violation("foreign-keys", "the store", 1, (str(error),), _RESTORE)
        return
    counts: Counter[tuple[str, str]] = Counter((table, parent) for table, _, parent, _ in found)
    for (table, parent), count in counts.items():
        rows = [f"row {row}" for child, row, to, _ in found if (child, to) == (table, parent)][:_SAMPLES]
        yield Violation(
            "foreign-keys", f"{table} to {parent}", count, tuple(rows), "Mend or delete these rows."
        )


def _broken(connection: sqlite3.Connection, invariant: Invariant, at: Any) -> Iterator[Violation]:
    parameters = {"at": at} if ":at" in invariant.query else {}
    try:
        keys = tuple(str(key) for (key,) in connection.execute(invariant.query, parameters))
    except sqlite3.OperationalError as error:  # a table or column is missing, as the structure says, too
        yield Violation(invariant.name, "not to be looked at", 1, (str(error),), _RESTORE)
        return
    if keys:
        yield _violation(invariant.name, "rows", keys, f"It does not hold that {invariant.title}. {_RESTORE}")


def _violation(check: str, subject: str, found: tuple[str, ...], hint: str) -> Violation:
    return Violation(check, subject, len(found), found[:_SAMPLES], hint)


def _legacy_id(prefix: Any, key: Any) -> Any:
    return f"{prefix}{hashlib.sha256(key.encode()).hexdigest()[:32]}" if isinstance(key, str) else None
