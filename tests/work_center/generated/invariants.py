"""What must hold after steps, whatever the store: worked out by other means than the steps' own code."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections import Counter
from typing import Any, NoReturn

from tests.work_center.structure.lines import expected, lines

from pgflow_migrate.work_center.chain import CHECKSUMS, STEPS, Step

Row = tuple[Any, ...]
Rows = list[Row]

_RUN_COLUMNS = ("ordinal", "terminal_status", "terminal_at")
_BACKFILLED = ("conversations", "conversation_entries", "action_entries", "engine_turns")
_ANEW = {"prepared", "responded", "cancelled", "legacy_imported"}
_LOST = "Legacy provider dispatch outcome is unknown after schema upgrade"
_ADDED_TO_OLDER_TURNS = {
    29: ("message_entry_ids", "control_entry_ids", "claimed_through_sequence", "consumed_through_sequence"),
    31: ("dispatch_capability", "response_hash", "dispatched_at", "error"),
}


class Picture:
    """A store at one moment."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        # With the types: 1 is not 1.0 here. As bytes: not all text is UTF-8.
        self.schema = tuple(
            connection.execute("select type, name, tbl_name, sql from sqlite_master").fetchall()
        )
        self.columns, self.lines = _shape(connection, self.schema)
        factory, connection.text_factory = connection.text_factory, bytes
        self.rows: dict[str, Rows] = {}
        for table, names in self.columns.items():
            values = ", ".join(f"typeof({_quoted(name)}) || ':' || quote({_quoted(name)})" for name in names)
            self.rows[table] = connection.execute(f"select {values} from {_quoted(table)}").fetchall()
        connection.text_factory = factory
        self.dangling = Counter(connection.execute("pragma foreign_key_check").fetchall())
        self.user_version = connection.execute("pragma user_version").fetchone()
        self.contract = _contract(connection)

    def same(self) -> tuple[Any, ...]:
        """What two pictures of the same store have in common; the time in the ledger apart."""
        rows = {table: rows for table, rows in self.rows.items() if table != "schema_migrations"}
        return sorted(self.schema, key=str), rows, self.dangling, self.user_version

    def of(self, table: str, *columns: str) -> Counter[Row]:
        """The rows of a table, with these columns."""
        places = [self.columns[table].index(column) for column in columns]
        return Counter(tuple(row[place] for place in places) for row in self.rows[table])


_SHAPES: dict[tuple[Row, ...], tuple[dict[str, tuple[str, ...]], list[str]]] = {}


def _shape(
    connection: sqlite3.Connection, schema: tuple[Row, ...]
) -> tuple[dict[str, tuple[str, ...]], list[str]]:
    """The columns of each table, and the structure's lines; asked once for each schema that comes up."""
    if schema not in _SHAPES:
        columns = {
            table: tuple(
                name
                for (name,) in connection.execute(
                    "select name from pragma_table_xinfo(?)", (table,)
                ).fetchall()
            )
            for kind, table, _, _ in schema
            if kind == "table"
        }
        _SHAPES[schema] = columns, lines(connection)
    return _SHAPES[schema]


def check(
    connection: sqlite3.Connection, before: Picture, after: Picture, due: list[Step], prefix: int
) -> None:
    """Assert all that holds after the steps ``due`` have been applied.

    Args:
        connection: the store now.
        before: it before them.
        after: it now.
        due: the steps, those that were adopted not among them.
        prefix: the source schema version that was given.
    """
    numbers = {step.number for step in due}
    _nothing_else_changes(before, after, numbers)
    _structure(before, after, due)
    assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]
    if not numbers & {30}:
        assert after.dangling - before.dangling == Counter()
    if 28 in numbers:
        _runs_are_numbered(connection)
    if 30 in numbers:
        _entries(connection, f"{prefix or 22}")
    if numbers & {32, 34} and not before.contract and "engine_turns" in before.rows:
        _statuses(before, after)


def ledger(connection: sqlite3.Connection) -> dict[str, tuple[str, Any]]:
    """The ledger by name; empty where there is none."""
    if not connection.execute("select 1 from sqlite_master where name = 'schema_migrations'").fetchone():
        return {}
    return {
        name: (checksum, at) for name, checksum, at in connection.execute("select * from schema_migrations")
    }


def check_ledger(
    before: dict[str, tuple[str, Any]], after: dict[str, tuple[str, Any]], now: int, to: Step
) -> None:
    """Assert that each step up to ``to`` has its line: as before, of its alias' time, or of now."""
    wanted = dict(before)
    for step in STEPS:
        if step.number <= to.number and step.name not in before:
            alias = before.get(step.alias or "")
            wanted[step.name] = (CHECKSUMS[step.name], (alias[1] or now) if alias else now)
    assert after == wanted


def _nothing_else_changes(before: Picture, after: Picture, numbers: set[int]) -> None:
    assert after.user_version == before.user_version
    for table, columns in before.columns.items():
        if table in ("schema_migrations", "migration_context"):
            continue
        assert after.columns[table][: len(columns)] == columns or table == "engine_turns"
        kept = [name for name in columns if not (table == "runs" and 28 in numbers and name in _RUN_COLUMNS)]
        if table == "engine_turns" and numbers & {32, 34}:
            kept = [
                "id",
                "run_id",
                "action_id",
                "work_item_id",
                "ordinal",
                "request_key",
                "response",
                "created_at",
            ]
        was, is_ = before.of(table, *kept), after.of(table, *kept)
        assert not was - is_, table
        if table not in _BACKFILLED or 30 not in numbers:
            assert was == is_, table


def _structure(before: Picture, after: Picture, due: list[Step]) -> None:
    for step in due:
        for line in expected()[step.name]:
            table, _, rest = line.partition(": ")
            older = step.number == 25 and "engine_turns" in before.columns
            # A table that was there already keeps its shape; a column that was there its type.
            if older or (rest and table in before.columns and rest.split()[0] in before.columns[table]):
                continue
            assert line in after.lines, step.name
        for column in _ADDED_TO_OLDER_TURNS.get(step.number, ()):
            assert column in after.columns["engine_turns"]
    if any(step.number == 34 for step in due) and not before.contract:
        turns = [line for line in expected()["25-engine-turns"] if "engine_turns" in line]
        assert set(turns) <= set(after.lines)
        assert any(line.startswith("trigger trg_engine_turn_request_immutable") for line in after.lines)
    changing = {line for line in before.lines if "engine_turns" in line or "migration_context" in line}
    assert set(before.lines) - changing <= set(after.lines)


def _runs_are_numbered(connection: sqlite3.Connection) -> None:
    assert connection.execute(
        """
        select id from (
          select *, row_number() over (partition by action_id order by started_at, id) as place from runs
        )
        where id is not null and (
          ordinal is not place
          or (status != 'running' and (terminal_status is not status
            or terminal_at is not coalesce(ended_at, started_at)))
        )
        """
    ).fetchall() == []  # fmt: skip


def _entries(connection: sqlite3.Connection, prefix: str) -> None:
    for table, kind, key in (
        ("conversation_entries", "legacy-conversation", "source_key"),
        ("action_entries", "legacy-action-entry", "source_key"),
        ("engine_turns", "legacy-engine-turn", "request_key"),
    ):
        for id_, source in connection.execute(f"select id, {key} from {table}").fetchall():
            if id_.startswith("legacy-"):
                assert id_ == f"{kind}-{hashlib.sha256(source.encode()).hexdigest()[:32]}"
    _conversations(connection, prefix)
    _inputs(connection, prefix)


def _conversations(connection: sqlite3.Connection, prefix: str) -> None:
    connection.text_factory = lambda stored: stored.decode("utf-8", "replace")
    items = connection.execute("select id, messages from work_items").fetchall()
    assert connection.execute("select count(*) from conversations").fetchone() == (len(items),)
    for item, messages in items:
        entries = connection.execute(
            "select sequence, source_key, payload from conversation_entries where conversation_id = ?"
            " and id like 'legacy-%' order by sequence",
            (f"work-item:{item}",),
        ).fetchall()
        places = [
            place for place, message in enumerate(_list(messages), 1) if isinstance(message, (dict, list))
        ]
        own = connection.execute(
            "select count(*) from conversation_entries where conversation_id = ? and id = 'own'",
            (f"work-item:{item}",),
        ).fetchone()[0]
        found = [entry[0] for entry in entries]
        # One of the program's own may have the key of one of them already.
        assert found == places or (own and set(found) < set(places) and len(places) - len(found) == 1)
        for place, source, payload in entries:
            assert source.startswith(f"{prefix}:work_items.messages:{item}:")
            message = _list(messages)[place - 1]
            if isinstance(message, dict):
                assert sorted(json.loads(payload)) == sorted(message)


def _inputs(connection: sqlite3.Connection, prefix: str) -> None:
    wanted = connection.execute(
        """
        select :prefix || ':pending_action_inputs:' || p.event_id, p.action_id,
          case when p.superseded_at is not null then 'cancelled'
            when p.consumed_at is not null then 'consumed' else 'pending' end
        from pending_action_inputs p join events e on e.id = p.event_id
        union all
        select :prefix || ':events:' || e.id, e.action_id,
          case a.status when 'ready' then 'consumed' else 'rejected' end
        from events e join actions a on a.id = e.action_id
        where e.type = 'action.input_added'
          and not exists (select 1 from pending_action_inputs p where p.event_id = e.id)
        """,
        {"prefix": prefix},
    ).fetchall()
    found = {
        source: (action, status, id_)
        for id_, source, action, status in connection.execute(
            "select id, source_key, action_id, status from action_entries"
        )
    }
    for source, action, status in wanted:
        if found[source][2] != "own":
            assert found[source][:2] == (action, status)
    made = {source for source, (_, _, id_) in found.items() if id_.startswith("legacy-")}
    assert made <= {source for source, _, _ in wanted}
    turns = connection.execute(
        """
        select e.source_key, e.engine_turn_id, t.request_key, t.run_id = e.run_id
        from action_entries e left join engine_turns t on t.id = e.engine_turn_id
        where e.id like 'legacy-%' and e.engine_turn_id like 'legacy-%'
        """
    ).fetchall()
    for source, _, key, same_run in turns:
        assert (key, same_run) == (f"{source}:legacy-turn", 1)


def _statuses(before: Picture, after: Picture) -> None:
    now = {id_: (status, error) for id_, status, error in after.of("engine_turns", "id", "status", "error")}
    own = "error" in before.columns["engine_turns"]
    for row in before.of("engine_turns", "id", "status", *(["error"] if own else [])):
        status, error = _word(row[1]), row[2] if own else b"null:NULL"
        wanted = status if status in _ANEW else "responded" if status == "consumed" else "unknown"
        if wanted != _word(now[row[0]][0]):
            assert status == "Prepared"  # where the older column compares without regard to case
            continue
        lost = status in ("claimed", "dispatching", "blocked") and error == b"null:NULL"
        assert now[row[0]][1] == (f"text:'{_LOST}'".encode() if lost else error)


def _word(typed: bytes) -> str:
    return typed.decode().partition(":")[2].strip("'")


def _contract(connection: sqlite3.Connection) -> bool:
    found = connection.execute("select sql from sqlite_master where name = 'engine_turns'").fetchone()
    text = "".join(found[0].lower().split()) if found else ""
    statuses = "'prepared','dispatching','responded','unknown','cancelled','legacy_imported'"
    return f"statustextnotnullcheck(statusin({statuses}))" in text


def _list(messages: Any) -> list[Any]:
    if not isinstance(messages, str):
        return []
    try:
        found = json.loads(messages, parse_constant=_no_constant)
    except ValueError:
        return []
    return found if isinstance(found, list) else []


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
