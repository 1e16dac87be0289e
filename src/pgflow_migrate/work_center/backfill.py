"""Step 30: what older versions kept as messages, inputs and events, as entries and turns.

Ids, keys, payloads and times are the program's to the byte, so everything goes through JavaScript's notions
of truth, numbers and text. A source key says where an entry comes from; one that is there stays as it is.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

from pgflow_migrate.work_center.javascript import (
    UNDEFINED,
    JavaScriptTypeError,
    Undefined,
    Value,
    get,
    is_object,
    number_to_string,
    parse_or,
    sha256,
    stable_json,
    stringify,
    to_number,
    to_string,
    truthy,
)
from pgflow_migrate.work_center.progress import RowsRead
from pgflow_migrate.work_center.revision import Store, compile_only
from pgflow_migrate.work_center.values import Refused, Row, bound, column, either, rows, shown

_INTERVAL = 1000  # rows between two reports of progress
_ID_DIGITS = 32  # of the key's hash, in an id

_REFUSALS = (Refused, JavaScriptTypeError, sqlite3.IntegrityError)

_WORK_ITEMS = "select id, messages, created_at, updated_at from work_items order by id"

_PENDING_INPUTS = """
    select p.*, e.created_at, r.owner_boot_id, r.lease_epoch
    from pending_action_inputs p
    join events e on e.id = p.event_id
    left join runs r on r.id = p.run_id
    order by p.action_id, p.event_id
"""

_LONE_EVENTS = """
    select e.*, a.status as action_status, a.generation, a.spec_hash
    from events e
    join actions a on a.id = e.action_id
    left join pending_action_inputs p on p.event_id = e.id
    where e.type = 'action.input_added' and p.event_id is null
    order by e.action_id, e.id
"""

_CONVERSATION = """
    insert into conversations (id, work_item_id, status, created_at, updated_at)
    values (?, ?, 'active', ?, ?)
    on conflict(work_item_id) do nothing
"""

_CONVERSATION_ENTRY = """
    insert into conversation_entries (
      id, conversation_id, work_item_id, sequence, kind, role, status, text, attachments,
      turn_id, source_key, payload, created_at, updated_at
    )
    values (?, ?, ?, ?, 'message', ?, ?, ?, ?, ?, ?, ?, ?, ?)
    on conflict(source_key) do nothing
"""

_LEGACY_TURN = """
    insert into engine_turns (
      id, work_item_id, action_id, run_id, ordinal, status, owner_boot_id, lease_epoch,
      input_entry_ids, message_entry_ids, control_entry_ids, request_body, request_hash,
      request_key, responded_at, consumed_at, created_at, updated_at
    )
    values (?, ?, ?, ?, ?, 'legacy_imported', ?, ?, '[]', '[]', '[]', '{}', '', ?, ?, ?, ?, ?)
    on conflict(request_key) do nothing
"""

_TURN_BY_KEY = "select id from engine_turns where request_key = ?"

_ACTION_ENTRY = """
    insert into action_entries (
      id, work_item_id, action_id, run_id, sequence, kind, role, status, text, attachments,
      source_key, payload, engine_turn_id, created_at, updated_at, consumed_at
    )
    values (?, ?, ?, ?, ?, 'message', 'user', ?, ?, ?, ?, ?, ?, ?, ?, ?)
    on conflict(source_key) do nothing
"""


def backfill(store: Store) -> None:
    """Fill the tables of steps 23 to 25 from those of version 22.

    Raises:
        Refused: the program could not do it either; names the row.
        sqlite3.Error: as for any statement.
    """
    _Backfill(store).run()


class _Backfill:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._connection = store.connection
        self._now = float(store.now)
        self._message = 0  # the place of the message that is being taken
        self._prefix = number_to_string(float(store.source_schema_version or 22))

    def run(self) -> None:
        compile_only(self._connection, _CONVERSATION, _CONVERSATION_ENTRY, _LEGACY_TURN, _ACTION_ENTRY)
        for row in self._read("work_items", _WORK_ITEMS):
            with _naming("work item", row["id"]):
                self._converse(row)
        for row in self._read("pending_action_inputs", _PENDING_INPUTS):
            with _naming("pending input of event", column(row, "event_id")):
                self._take_input(row)
        for row in self._read("events", _LONE_EVENTS):
            with _naming("event", column(row, "id")):
                self._take_event(row)

    def _read(self, table: str, query: str) -> Iterator[Row]:
        """The rows of ``query``, which reads ``table`` and others, one after the other, with progress."""
        of = self._connection.execute(f"select count(*) from ({query})").fetchone()[0]  # noqa: S608
        for done, row in enumerate(rows(self._connection.execute(query))):
            if done % _INTERVAL == 0:
                self._store.on_progress(RowsRead(self._store.step, table, done, of))
            yield row

    def _insert(self, table: str, statement: str, *values: Any) -> None:
        self._count(table, self._connection.execute(statement, values).rowcount)

    def _count(self, table: str, inserted: int) -> None:
        if inserted > 0:
            self._store.rows[table] = self._store.rows.get(table, 0) + inserted

    def _converse(self, row: Row) -> None:
        """A conversation for a work item, and an entry for each of its messages."""
        work_item = row["id"]
        conversation = f"work-item:{to_string(work_item)}"
        created = either(row["created_at"], self._now)
        updated = either(row["updated_at"], self._now)
        self._insert(
            "conversations",
            _CONVERSATION,
            bound(conversation, "id"),
            bound(work_item, "work_item_id"),
            bound(created, "created_at"),
            bound(updated, "updated_at"),
        )
        messages = parse_or(row["messages"], [])
        if not isinstance(messages, list):
            return
        key = f"{self._prefix}:work_items.messages:{to_string(work_item)}"
        whose = (bound(conversation, "conversation_id"), bound(work_item, "work_item_id"))
        entries = self._entries(messages, key, whose, created, updated)
        try:
            self._count(
                "conversation_entries", self._connection.executemany(_CONVERSATION_ENTRY, entries).rowcount
            )
        except _REFUSALS as error:
            raise Refused(f"message {self._message}: {error}") from error

    def _entries(
        self, messages: list[Value], key: str, whose: tuple[Any, Any], created: Value, updated: Value
    ) -> Iterator[tuple[Any, ...]]:
        """The entries of a conversation, as their statement takes them."""
        occurrences: dict[str, int] = {}
        # The number is the place in the list: what is no message leaves a gap.
        for self._message, message in enumerate(messages, 1):
            if not is_object(message):
                continue
            payload = stable_json(message)
            identity = _identity(message, payload)
            occurrence = occurrences[identity] = occurrences.get(identity, 0) + 1
            source = f"{key}:{identity}:{occurrence}"
            said = get(message, "text")
            # A time that is zero or no number counts as none.
            at = to_number(get(message, "createdAt"))
            yield (
                _id("legacy-conversation", source),
                *whose,
                float(self._message),
                bound(either(get(message, "role"), "legacy_instruction"), "role"),
                bound(either(get(message, "status"), "completed"), "status"),
                bound(said if isinstance(said, str) else "", "text"),
                _list(get(message, "attachments")),
                bound(either(get(message, "turnId"), None), "turn_id"),
                bound(source, "source_key"),
                bound(payload, "payload"),
                bound(either(at, created), "created_at"),
                bound(either(to_number(get(message, "updatedAt")), at, updated), "updated_at"),
            )

    def _take_input(self, row: Row) -> None:
        """An entry for an input that an event brought, and a turn when a run has consumed it."""
        event = to_string(column(row, "event_id"))
        source = f"{self._prefix}:pending_action_inputs:{event}"
        action, run = column(row, "action_id"), column(row, "run_id")
        work_item = column(row, "work_item_id")
        consumed, superseded = column(row, "consumed_at"), column(row, "superseded_at")
        created = either(column(row, "created_at"), self._now)
        sequence = self._next("sequence", "action_entries", "action_id", action)
        status = "cancelled" if _is_set(superseded) else "consumed" if _is_set(consumed) else "pending"
        turn: Value = None
        if status == "consumed" and truthy(run) and truthy(row["owner_boot_id"]):
            turn = self._legacy_turn(row, f"{source}:legacy-turn", created)
        self._insert(
            "action_entries",
            _ACTION_ENTRY,
            _id("legacy-action-entry", source),
            bound(work_item, "work_item_id"),
            bound(action, "action_id"),
            bound(either(run, None), "run_id"),
            sequence,
            status,
            bound(either(column(row, "text"), ""), "text"),
            bound(either(column(row, "attachments"), "[]"), "attachments"),
            bound(source, "source_key"),
            _json({"eventId": column(row, "event_id")}),
            bound(turn, "engine_turn_id"),
            bound(created, "created_at"),
            bound(either(consumed, superseded, created), "updated_at"),
            bound(either(consumed, None), "consumed_at"),
        )

    def _legacy_turn(self, row: Row, key: str, created: Value) -> Value:
        """The id of the turn with this request key; made unless it is there."""
        request_key = bound(key, "request_key")
        found = list(rows(self._connection.execute(_TURN_BY_KEY, (request_key,))))
        if found:
            return found[0]["id"]
        turn = _id("legacy-engine-turn", key)
        consumed = bound(row["consumed_at"], "consumed_at")
        self._insert(
            "engine_turns",
            _LEGACY_TURN,
            turn,
            bound(column(row, "work_item_id"), "work_item_id"),
            bound(row["action_id"], "action_id"),
            bound(row["run_id"], "run_id"),
            self._next("ordinal", "engine_turns", "run_id", row["run_id"]),
            bound(row["owner_boot_id"], "owner_boot_id"),
            bound(either(to_number(row["lease_epoch"]), 0.0), "lease_epoch"),
            request_key,
            consumed,
            consumed,
            bound(created, "created_at"),
            consumed,
        )
        return turn

    def _take_event(self, row: Row) -> None:
        """An entry for an input that was never pending: taken by an action that was ready, else rejected."""
        data = parse_or(column(row, "data"), {})
        source = f"{self._prefix}:events:{to_string(column(row, 'id'))}"
        status = "consumed" if row["action_status"] == "ready" else "rejected"
        sequence = self._next("sequence", "action_entries", "action_id", column(row, "action_id"))
        created = either(column(row, "created_at"), self._now)
        said, attachments = get(data, "text"), get(data, "attachments")
        self._insert(
            "action_entries",
            _ACTION_ENTRY,
            _id("legacy-action-entry", source),
            bound(column(row, "work_item_id"), "work_item_id"),
            bound(column(row, "action_id"), "action_id"),
            None,
            sequence,
            status,
            bound(said if isinstance(said, str) else "", "text"),
            _list(attachments),
            bound(source, "source_key"),
            _json(
                {
                    "eventId": column(row, "id"),
                    "inputId": either(get(data, "inputId"), None),
                    # A generation of 0 is written as none, because the program takes it for none.
                    "sourceGeneration": either(column(row, "action_generation"), None),
                    "currentGeneration": row["generation"],
                    "currentSpecHash": either(row["spec_hash"], ""),
                    "migrationDisposition": status,
                }
            ),
            None,
            bound(created, "created_at"),
            bound(created, "updated_at"),
            bound(created, "consumed_at") if status == "consumed" else None,
        )

    def _next(self, what: str, table: str, owner: str, key: Value) -> Any:
        """One more than the greatest number that the owner's rows have; 1 when that is not a number."""
        query = f"select coalesce(max({what}), 0) + 1 as value from {table} where {owner} = ?"  # noqa: S608
        (row,) = rows(self._connection.execute(query, (bound(key, owner),)))
        return bound(either(to_number(row["value"]), 1.0), what)


def _identity(message: Value, content: str | Undefined) -> str:
    """What tells a message from the others of its work item: its id, its turn, else role and content."""
    named = either(get(message, "id"), get(message, "turnId"))
    if truthy(named):
        return to_string(named)
    role = to_string(either(get(message, "role"), "legacy"))
    return f"{role}:{sha256(to_string(content))}"


def _id(kind: str, key: str) -> str:
    return f"{kind}-{sha256(key)[:_ID_DIGITS]}"


def _list(value: Value) -> Any:
    """An array as JSON, in its own order; what is none is empty."""
    return bound(stringify(value), "attachments") if isinstance(value, list) else "[]"


def _json(value: Value) -> Any:
    return bound(stable_json(value), "payload")


def _is_set(value: Value) -> bool:
    """``value != null``."""
    return value is not None and value is not UNDEFINED


@contextlib.contextmanager
def _naming(kind: str, key: Value) -> Iterator[None]:
    """Say of which row it is that something is refused."""
    try:
        yield
    except _REFUSALS as error:
        raise Refused(f"{kind} {shown(key)}: {error}") from error
