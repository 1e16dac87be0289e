"""The engine-turn status contract: whether a store has it, how it gets it, and what must come along."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

from pgflow_migrate.work_center.javascript import stringify
from pgflow_migrate.work_center.revision import Store
from pgflow_migrate.work_center.values import Refused

_REVISION = "wc_32_engine_turn_status_contract"
STATUSES = ("prepared", "dispatching", "responded", "unknown", "cancelled", "legacy_imported")
"""The statuses that a turn may have, in the contract's order."""

# What JavaScript takes for a blank; SQLite takes fewer, but a comment may hold any.
_BLANKS = r"[\t-\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff]"
_S, _SS = f"{_BLANKS}*", f"{_BLANKS}+"
_WORDS = f"{_S},{_S}".join(f"'{status}'" for status in STATUSES)
_CONTRACT = re.compile(
    rf"status{_SS}TEXT{_SS}NOT{_SS}NULL{_SS}CHECK{_S}\({_S}status{_SS}IN{_S}\({_S}{_WORDS}{_S}\){_S}\)",
    re.IGNORECASE | re.ASCII,
)

_KEPT_INDEXES = (("status", "updated_at"), ("request_key",), ("run_id", "ordinal"))


def has_contract(connection: sqlite3.Connection) -> bool:
    """Whether the text of table engine_turns restricts status to :data:`STATUSES`, in that order."""
    found = connection.execute(
        "select sql from sqlite_master where type = 'table' and name = 'engine_turns'"
    ).fetchone()
    return bool(found and found[0] and _CONTRACT.search(found[0]))


def rebuild(store: Store) -> None:
    """Make engine_turns anew with the contract; rows, references, index and trigger are as before.

    Raises:
        Refused: the store's foreign keys do not hold.
        sqlite3.Error: the old table lacks a column, or a row does not fit.
    """
    # Between dropping and renaming, references lead nowhere. The setting ends with the transaction.
    store.connection.execute("pragma defer_foreign_keys = on")
    store.run(_REVISION, "new_table", "copy_rows", "exchange", "recovery_index", "request_immutable")
    _require_foreign_keys(store.connection)


def require(connection: sqlite3.Connection) -> None:
    """Raise unless the contract is there with all that belongs to it.

    Raises:
        Refused: says what is missing.
    """
    if reason := missing(connection):
        raise Refused(reason)
    _require_foreign_keys(connection)


def missing(connection: sqlite3.Connection) -> str | None:
    """What engine_turns lacks of the contract, in words; None when nothing."""
    if not has_contract(connection):
        return "engine_turns does not have the status contract"
    referenced = [row[2] for row in connection.execute("pragma foreign_key_list(engine_turns)")]
    if sorted(referenced) != ["actions", "runs", "work_items"]:
        return "engine_turns does not have its foreign keys to actions, runs and work_items"
    indexes = [row[1] for row in connection.execute("pragma index_list(engine_turns)").fetchall()]
    for columns in _KEPT_INDEXES:
        # Asked anew for each, and no further than needed, as the program: a name may make the question fail.
        if not any(_columns(connection, index) == columns for index in indexes):
            return f"engine_turns does not have its index on {', '.join(columns)}"
    trigger = (
        "select 1 from sqlite_master where type = 'trigger' and name = 'trg_engine_turn_request_immutable'"
    )
    if not connection.execute(trigger).fetchone():
        return "engine_turns does not have its trigger trg_engine_turn_request_immutable"
    return None


def _columns(connection: sqlite3.Connection, index: str) -> Sequence[str]:
    # Quoted as JSON, as the program does: a name that SQL quotes otherwise is not found, or an error.
    return tuple(row[2] for row in connection.execute(f"pragma index_info({stringify(index)})"))


def _require_foreign_keys(connection: sqlite3.Connection) -> None:
    violations = connection.execute("pragma foreign_key_check").fetchall()
    if violations:
        table, rowid, parent, _ = violations[0]
        more = f", and {len(violations) - 1} more" if len(violations) > 1 else ""
        raise Refused(f"row {rowid} of {table} refers to no row of {parent}{more}")
