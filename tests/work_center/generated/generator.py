"""Stores of many shapes, and what befalls them on their way: other rows, older tables, gaps in the ledger.

A walk is data: statements for a store at version 22, and statements before single steps. Who runs them leaves
out those that the store does not take, so that a strategy need not know which tables are there at the time.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from tests.work_center.stores import run

from pgflow_migrate import resources
from pgflow_migrate.work_center.chain import CHECKSUMS, STEPS

Statement = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Walk:
    """A store and its way.

    Attributes:
        base: the tables of version 22.
        rows: what is in them; put in without regard to foreign keys.
        before: by the number of a step, what befalls the store before that step.
        twice: the number of the step that is taken once more after its line in the ledger was lost.
        foreign_keys: whether the upgrade keeps them.
        now: the time of the first step, in milliseconds since 1970.
        source_schema_version: as for the upgrade.
    """

    base: str
    rows: tuple[Statement, ...]
    before: dict[int, tuple[Statement, ...]]
    twice: int
    foreign_keys: bool
    now: int
    source_schema_version: int

    def create(self, connection: sqlite3.Connection) -> None:
        """Make the store at version 22."""
        connection.execute("pragma foreign_keys = off")
        connection.execute("begin")
        run(connection, self.base)
        take(connection, self.rows)
        connection.execute("commit")
        connection.execute(f"pragma foreign_keys = {int(self.foreign_keys)}")

    def befall(self, connection: sqlite3.Connection, number: int) -> None:
        """What comes before step ``number``; references may lead nowhere."""
        connection.execute("pragma foreign_keys = off")
        connection.execute("begin")
        take(connection, self.before.get(number, ()))
        connection.execute("commit")
        connection.execute(f"pragma foreign_keys = {int(self.foreign_keys)}")


def take(connection: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    """Execute what the store takes: a table may not be there yet, a trigger or a key may be against it."""
    for sql, values in statements:
        try:
            connection.execute(sql, values)
        except (sqlite3.OperationalError, sqlite3.IntegrityError):
            continue


WORK_ITEMS = ("w1", "w2", "wü", 'w"4', "5", "")
ACTIONS = ("a1", "a2", "A3", "7")
RUNS = ("r1", "r2", "R3", "é", "r5", "10")
TURNS = ("t1", "t2", "t3", "t4")

# Times: most of them plain and often equal; others are what columns without strict types may hold.
TIMES = st.sampled_from([5, 6, 7, 7, 8, 100]) | st.sampled_from(
    [None, 0, 1, -5, 1_700_000_000_000, 1.5, -0.0, 1e300, 2**53 - 1, "soon", "12", b"\x01\x02", ""]
)
_TEXT = [
    "",
    "x",
    "user",
    "ü😀",
    "\u2028",
    "0",
    " 12 ",
    "0x1f",
    "1e3",
    "-5",
    "Infinity",
    "\uffff",
    'q"\\',
    "\x00z",
]
_LONE = ["\ud800", "a\udc00b", "\udc00\ud800"]  # written as escapes
SCALARS = st.sampled_from(
    [None, True, False, 0, -0.0, 1, -1, 5, 1.5, 1e21, 1e-7, 12345678901234567890, 2**53 + 1, *_TEXT, *_LONE]
)
_KEYS = st.sampled_from(
    ["a", "b", "10", "9", "01", "__proto__", "é", "\U00010000", "\uffee", "toString", "id", "", "4294967295"]
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=3),
    max_leaves=6,
)
# Of a message: what a program would put there, and what JavaScript makes a text of.
_NAMES = st.sampled_from(
    ["user", "m1", "m2", "m2", "assistant", "done", 5, 0, "", None, 7.25, True, "ü", "\ud83d"]
)
_MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "id": _NAMES,
        "turnId": _NAMES,
        "role": _NAMES,
        "status": _NAMES,
        "text": st.sampled_from(["hi", "", 3, None, "x\ud800", "a\x00b"]),
        "attachments": st.sampled_from([[], [1, {"b": 1, "a": -0.0, "2": 1, "1": 1}], None, "x", {}]),
        "createdAt": SCALARS,
        "updatedAt": SCALARS,
        "extra": VALUES,
    },
)
# Where the program throws, so that step 30 cannot be done.
_WILD_MESSAGE = st.fixed_dictionaries(
    {}, optional={"id": VALUES, "role": VALUES, "turnId": VALUES, "createdAt": VALUES}
)
_ODD_MESSAGES = (
    None,
    "",
    "bad",
    "{}",
    "null",
    "3",
    '"x"',
    "[NaN]",
    "[1,]",
    b"[1]",
    5,
    " [ ] ",
    "[1e999]",
    '[{"id":1,"id":2,"text":"a\\u0000b"}]',
    "\ufeff[]",
    '[{"role":"\\ud83d\\ude00","text":"\\uD800"}]',
    '[{"a":1e999,"b":-1e999,"c":1E400,"createdAt":1e999}]',
    "[[[]],[1],[{}]]",
    '[{"id":"m","constructor":1,"hasOwnProperty":2,"__proto__":{"x":1}}]',
    '[{"id":"\\u007f\\u2028"},\n\t{"id":"\x7f\u2028"}]',
    '[{"text":"\t"}]',
    '[{"createdAt":"\u00a012\ufeff","updatedAt":"12_0"}]',
    '[{"createdAt":[7],"updatedAt":[[8]]},{"createdAt":true}]',
)
_BROKEN = (b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"\xf0\x9f\x98", b"\xe2\x82", b"\xf5\x80\x80\x80")


@st.composite
def _messages(draw: st.DrawFn, wild: bool) -> Any:
    """The column ``messages``: mostly a list, as text or, where it is not all UTF-8, as the bytes of one."""
    if draw(st.integers(0, 5)) == 0:
        return draw(st.sampled_from(_ODD_MESSAGES))
    kinds: list[st.SearchStrategy[Any]] = [
        _MESSAGE,
        _MESSAGE,
        _MESSAGE,
        VALUES,
        *([_WILD_MESSAGE] if wild else []),
    ]
    listed: list[Any] = draw(st.lists(st.one_of(kinds), max_size=5))
    again: bool = draw(st.booleans())
    if listed and again:
        listed.append(listed[0])
    if draw(st.booleans()):
        return json.dumps(listed)
    text = json.dumps(listed, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return text.replace(b"hi", draw(st.sampled_from(_BROKEN)))


_DATA = st.sampled_from(
    [
        "{}",
        "bad",
        "",
        "[]",
        '"s"',
        "3",
        None,
        '{"text":"t","inputId":"i"}',
        '{"text":5,"inputId":[1]}',
        '{"text":"\\ud800","inputId":{"b":1,"a":-0}}',
        '{"attachments":[1,{"b":2,"a":1}],"inputId":0}',
        '{"text":"a\\u0000b","attachments":"x","inputId":1e21}',
        b"{}",
        7,
    ]
)
_SHAPES = (
    ("", ""),
    ("", ""),
    ("messages text,", "messages text, title text default 'untitled', deleted_at integer,"),
    ("id text primary key,\n  messages", "id primary key,\n  messages"),
    ("  data text,", "  data,"),
    ("superseded_at integer", "superseded_at integer, created_at integer default 3, owner_boot_id text"),
    ("  checkpoint text\n)", "  checkpoint text, ordinal integer, terminal_at integer\n)"),
    ("  checkpoint text\n)", "  checkpoint text, terminal_status text default 'none'\n)"),
    ("spec_hash text\n)", "spec_hash text\n) without rowid"),
)
_OTHER_TABLES: tuple[Statement, ...] = (
    ("create table notes (id integer primary key, work_item_id text references work_items(id), n real)", ()),
    ("insert into notes values (1, (select min(id) from work_items), 1.5), (7, null, null)", ()),
    ('create table "odd \' name" ("a""b" blob, c generated always as (length("a""b")) virtual)', ()),
    ("insert into \"odd ' name\" values (x'00ff')", ()),
    ("create index runs_by_status on runs(status) where status is not null", ()),
    ("create view open_work as select id from work_items where updated_at > 5", ()),
    ("create table migration_context (a)", ()),
    ("pragma user_version = 22", ()),
)


def _subset(draw: st.DrawFn, of: tuple[Any, ...]) -> list[Any]:
    """Some of them, in their order: one draw."""
    bits = draw(st.integers(0, 2 ** len(of) - 1))
    return [item for place, item in enumerate(of) if bits >> place & 1]


@st.composite
def walks(draw: st.DrawFn, *, wild: bool = False) -> Walk:
    """Walks. Those that are not wild have rows that step 30 can read.

    Args:
        draw: hypothesis gives it.
        wild: whether rows may be such that the program gives a step up.
    """

    def pick(*of: Any) -> Any:
        return draw(st.sampled_from(of))

    base = (
        (resources.fixtures() / "work-center" / "base-22.sql")
        .read_text(encoding="utf-8")
        .replace(*pick(*_SHAPES))
    )
    rows: list[Statement] = []
    items = _subset(draw, WORK_ITEMS)
    for item in items:
        messages = draw(_messages(wild))
        as_text = isinstance(messages, bytes) and messages not in _ODD_MESSAGES
        rows.append(
            (
                "insert into work_items (id, messages, created_at, updated_at)"
                f" values (?, {'cast(? as text)' if as_text else '?'}, ?, ?)",
                (item, messages, draw(TIMES), draw(TIMES)),
            )
        )
    nowhere = ("gone",) if wild else ()
    actions = _subset(draw, ACTIONS) if items else []
    for action in actions:
        status = pick("ready", "ready", "done", "Ready", None)
        action_row = (action, pick(*items), status, draw(TIMES), pick(None, "", "h", 5))
        rows.append(("insert into actions values (?, ?, ?, ?, ?)", action_row))
    runs = _subset(draw, RUNS) if actions else []
    for name in runs:
        rows.append(
            (
                "insert into runs (id, action_id, work_item_id, status, started_at, ended_at, owner_boot_id,"
                " lease_epoch) values (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    pick(name, name, name, None),
                    pick(*actions, None, *nowhere),
                    pick(*items),
                    pick("running", "running", "completed", "failed", None, ""),
                    draw(TIMES),
                    draw(TIMES),
                    pick("b", "", None, "boot", 5),
                    pick(None, 0, 3, "x", "4", 2.5, -1, b"\x05", b""),
                ),
            )
        )
    events = _subset(draw, (-1, 1, 2, 3, 4, 5, 6)) if actions else []
    for event in events:
        values = (
            event,
            pick(*items),
            pick(*actions, None, "gone"),
            pick("action.input_added", "action.input_added", "action.input_added", "other", None),
            draw(_DATA) if not wild else pick("null", "{}", '{"text":{}}'),
            draw(TIMES),
            draw(TIMES),
        )
        rows.append(("insert into events values (?, ?, ?, ?, ?, ?, ?)", values))
    for event in _subset(draw, (*events, 77)) if actions else []:
        rows.append(
            (
                "insert into pending_action_inputs (event_id, action_id, work_item_id, run_id, text,"
                " attachments, consumed_at, superseded_at) values (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    event,
                    pick(*actions, *nowhere),
                    pick(*items, *nowhere),
                    pick(*runs, *runs, None, "", *nowhere),
                    pick(None, "", "t", 5, b"x", "a\x00b"),
                    pick(None, "", "[]", "[1]", 0),
                    draw(st.none() | TIMES),
                    draw(st.none() | st.none() | TIMES),
                ),
            )
        )
    rows += _subset(draw, _OTHER_TABLES)
    return Walk(
        base=base,
        rows=tuple(rows),
        before=_before(draw, items, actions, [name for name in runs if name is not None]),
        twice=draw(st.integers(23, 35)),
        foreign_keys=pick(True, True, True, False),
        now=pick(1000, 0, 1_700_000_000_001, -1),
        source_schema_version=pick(22, 22, 22, 17, 0),
    )


_STATUSES = (
    *("prepared", "claimed", "dispatching", "consumed", "blocked", "cancelled", "responded"),
    *("legacy_imported", "unknown", "weird", "Prepared"),
)


def _before(
    draw: st.DrawFn, items: list[str], actions: list[str], runs: list[str]
) -> dict[int, tuple[Statement, ...]]:
    """What befalls the store: at most three times, so that most steps meet what the one before has left."""
    befalls: dict[int, list[Statement]] = {}
    for number in draw(st.lists(st.integers(23, 35), max_size=3)):
        here = befalls.setdefault(number, [])
        kind = draw(st.sampled_from(["rows", "turns", "turns", "ledger", "ledger", "schema"]))
        if kind == "rows" and items:
            here += _rows(draw, items, actions, runs)
        elif kind == "turns" and number > 23:
            here += _older_turns(draw, items, actions, runs, number)
        elif kind == "ledger":
            here += _ledger(draw, number)
        elif kind == "schema":
            here += _subset(draw, _LATER_SCHEMA)
    if draw(st.booleans()):
        befalls.setdefault(32, []).extend(_older_turns(draw, items, actions, runs, 32))
    return {number: tuple(statements) for number, statements in befalls.items()}


_LATER_SCHEMA: tuple[Statement, ...] = (
    ("create table later (id text primary key, conversation_id text references conversations(id))", ()),
    ("alter table conversations add column color text default 'red'", ()),
    ("alter table action_entries add column weight integer not null default 3", ()),
    ("create index entries_by_role on conversation_entries(role)", ()),
    ("alter table coordinator_provider_turns add column claim_owner text", ()),
    ("create view entries as select id from action_entries", ()),
    ("create table migration_context (a)", ()),
)


def _rows(draw: st.DrawFn, items: list[str], actions: list[str], runs: list[str]) -> list[Statement]:
    """Rows of the new tables, as the program might have put them in since."""
    item = draw(st.sampled_from(items))
    source = draw(st.sampled_from(["22:events:1", "22:pending_action_inputs:2", "own", "22:events:-1"]))
    found: list[Statement] = [
        ("insert into conversations values (?, ?, 'closed', 1, 2)", (f"work-item:{item}", item)),
        (
            "insert into conversation_entries (id, conversation_id, work_item_id, sequence, kind, status,"
            " source_key, created_at, updated_at) values ('own', ?, ?, ?, 'control', 'x', ?, 1, 2)",
            (
                f"work-item:{item}",
                item,
                draw(st.sampled_from([0, 1000, -3])),
                f"22:work_items.messages:{item}:m2:1",
            ),
        ),
        (
            "insert into coordinator_mailbox_entries (id, work_item_id, sequence, kind, status, source_key,"
            " created_at, updated_at) values ('mail', ?, 1, 'x', 'pending', 'mail', 1, 2)",
            (item,),
        ),
        (
            "insert into coordinator_provider_turns (id, work_item_id, coordinator_turn_id, attempt_number,"
            " status, request_body, request_hash, prepared_at, updated_at)"
            " values ('pt', ?, 'ct', 1, 'prepared', '{}', 'h', 1, 2)",
            (item,),
        ),
    ]
    for action in actions[:1]:
        found.append(
            (
                "insert into action_entries (id, work_item_id, action_id, sequence, kind, status, source_key,"
                " engine_turn_id, created_at, updated_at)"
                " values ('own', ?, ?, ?, 'message', 'bound', ?, ?, 1, 2)",
                (
                    item,
                    action,
                    draw(st.sampled_from([1, 7, -2, 0])),
                    source,
                    draw(st.sampled_from([None, *TURNS])),
                ),
            )
        )
    found += _turns(draw, items, actions, runs, ("message_entry_ids",))
    return found


def _turns(
    draw: st.DrawFn, items: list[str], actions: list[str], runs: list[str], columns: tuple[str, ...]
) -> list[Statement]:
    if not runs or not actions:
        return []
    found: list[Statement] = []
    for ordinal, turn in enumerate(_subset(draw, TURNS), 1):
        values: dict[str, Any] = {
            "id": turn,
            "work_item_id": draw(st.sampled_from(items)),
            "action_id": draw(st.sampled_from(actions)),
            "run_id": draw(st.sampled_from(runs)),
            "ordinal": draw(st.sampled_from([ordinal, ordinal + 5, -1])),
            "status": draw(st.sampled_from(_STATUSES)),
            "owner_boot_id": "b",
            "lease_epoch": 1,
            "request_key": draw(st.sampled_from([turn, "22:pending_action_inputs:1:legacy-turn"])),
            "created_at": 5,
            "updated_at": draw(st.sampled_from([6, 6, None])),
            **{column: draw(st.sampled_from(['["x"]', "[]", "", 7])) for column in columns},
        }
        names = ", ".join(values)
        marks = ", ".join("?" * len(values))
        found.append((f"insert into engine_turns ({names}) values ({marks})", tuple(values.values())))
    found.append(("update action_entries set engine_turn_id = (select min(id) from engine_turns)", ()))
    found.append(
        (
            "insert into operations (id, work_item_id, engine_turn_id, operation_type, idempotency_key,"
            " replay_policy, effect_status, execution_status, created_at, updated_at)"
            " select 'o' || id, work_item_id, id, 'x', id, 'safe', 'pending', 'running', 1, 1"
            " from engine_turns",
            (),
        )
    )
    return found


_STATUS_COLUMNS = (
    "status TEXT NOT NULL",
    "status TEXT",
    "status TEXT COLLATE NOCASE",
    "status TEXT NOT NULL CHECK(status IN ('prepared','claimed','dispatching','consumed','blocked',"
    "'responded'))",
    "status TEXT NOT NULL CHECK ( status in ('PREPARED', 'dispatching','responded','unknown','cancelled',"
    "'legacy_imported') )",
    "status TEXT NOT NULL CHECK(status IN ('prepared', 'dispatching', 'responded', 'unknown', 'cancelled',"
    " 'legacy_imported'))",
    # The contract in a comment, with a blank that is none to SQL.
    "status TEXT /* status text not null\u00a0check(status in('prepared','dispatching','responded','unknown',"
    "'cancelled','legacy_imported')) */ NOT NULL",
)
_TURN_COLUMNS = {
    "input_entry_ids": "TEXT NOT NULL DEFAULT '[]'",
    "request_body": "TEXT",
    "request_hash": "TEXT",
    "dispatch_attempt": "INTEGER",
    "response": "TEXT",
    "message_entry_ids": "TEXT DEFAULT '[]'",
    "control_entry_ids": "TEXT",
    "claimed_through_sequence": "INTEGER",
    "consumed_through_sequence": "INTEGER",
    "dispatch_capability": "TEXT",
    "response_hash": "TEXT",
    "dispatched_at": "INTEGER",
    "error": "TEXT",
}
_ALWAYS = 5  # the first columns: no step adds them
_OLDER_SCHEMA: tuple[Statement, ...] = (
    ("create index idx_engine_turns_recovery on engine_turns(status, updated_at)", ()),
    ("create index own_index on engine_turns(updated_at)", ()),
    ('create index "we""ird" on engine_turns(status)', ()),
    ("create view v as select * from engine_turns", ()),
)


def _older_turns(
    draw: st.DrawFn, items: list[str], actions: list[str], runs: list[str], number: int
) -> list[Statement]:
    """engine_turns in a shape from before the status contract."""
    names = tuple(_TURN_COLUMNS)
    columns = (*names[:_ALWAYS], *(_subset(draw, names[_ALWAYS:]) if number <= 29 else names[_ALWAYS:]))
    status = draw(st.sampled_from(_STATUS_COLUMNS))
    others = " ".join(f"{column} {_TURN_COLUMNS[column]}," for column in columns)
    create = f"""
      create table engine_turns (
        id text primary key,
        work_item_id text not null references work_items(id) on delete cascade,
        action_id text not null references actions(id) on delete cascade,
        run_id text not null references runs(id) on delete cascade,
        ordinal integer not null, {status}, owner_boot_id text not null, lease_epoch integer not null,
        {others}
        request_key text not null unique, provider_request_id text, claimed_at integer, responded_at integer,
        consumed_at integer, created_at integer not null, updated_at integer,
        unique(run_id, ordinal)
      )"""
    schema = _subset(draw, _OLDER_SCHEMA) if draw(st.integers(0, 3)) == 0 else [_OLDER_SCHEMA[0]]
    return [
        ("drop table if exists engine_turns", ()),
        (create, ()),
        *schema,
        *_turns(draw, items, actions, runs, columns),
        *((_FORGET, (name,)) for name in ("32-engine-turn-status-contract", "34-engine-turn-status-repair")),
    ]


_FORGET = "delete from schema_migrations where name = ?"
_ADOPT = """
    insert into schema_migrations
    select ?, ?, ? where exists (select 1 from schema_migrations where name = ?)
"""


def _ledger(draw: st.DrawFn, number: int) -> list[Statement]:
    """Steps before ``number`` under their earlier name, or forgotten."""
    found: list[Statement] = []
    for step in _subset(draw, tuple(step for step in STEPS if step.number < number)):
        if step.alias is not None and draw(st.booleans()):
            at = draw(st.sampled_from([400, 0, -1, "x", 2.5]))
            found.append((_ADOPT, (step.alias, CHECKSUMS[step.alias], at, step.name)))
        if draw(st.booleans()):
            found.append((_FORGET, (step.name,)))
    return found
