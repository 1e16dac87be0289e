"""What a call has changed, row by row, and that a call has changed nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.dirty_runs.protocol import Row, Session
from tests.moments import moment

Key = tuple[Any, ...]
Rows = dict[str, dict[Key, Row]]

_KEYS = {
    "flows": ("flow_slug",),
    "steps": ("flow_slug", "step_slug"),
    "deps": ("flow_slug", "dep_slug", "step_slug"),
    "runs": ("run_id",),
    "run_work": ("run_id",),
    "step_states": ("run_id", "step_slug"),
    "step_tasks": ("run_id", "step_slug", "task_index"),
    "task_claims": ("claim_id",),
    "workers": ("worker_id",),
    "worker_functions": ("function_name",),
    "meta": ("queue_name",),
}


@dataclass
class Moment:
    """Equal to every time between two moments of the server's clock."""

    first: datetime | None = None
    last: datetime | None = None
    offset: timedelta = timedelta()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            other = moment(other)
        assert self.first
        assert self.last
        return isinstance(other, datetime) and self.first <= other - self.offset <= self.last

    __hash__ = None  # type: ignore[assignment]


@dataclass
class Changes:
    """The rows that differ, by table and key.

    Attributes:
        added: whole rows, without the columns that are NULL.
        changed: the columns that differ, as they are now.
        removed: whole rows, as ``added``.
        events: event name and payload of each hint sent, without the run's id.
        now: equal to any time between the first look and the last.
    """

    added: Rows = field(default_factory=dict)
    changed: Rows = field(default_factory=dict)
    removed: Rows = field(default_factory=dict)
    events: list[tuple[str, Row]] = field(default_factory=list)
    now: Moment = field(default_factory=Moment)

    def after(self, seconds: float) -> Moment:
        """Equal to any time that was so much later than one between the looks."""
        return Moment(self.now.first, self.now.last, timedelta(seconds=seconds))

    def tables(self) -> set[str]:
        """The tables that differ at all."""
        return {*self.added, *self.changed, *self.removed}


def _look(session: Session) -> Rows:
    found: Rows = {}
    for table in session.rows(
        "select n.nspname, c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace"
        " where n.nspname in ('pgflow', 'pgmq') and c.relkind = 'r'"
    ):
        name = table["relname"]
        key = _KEYS.get(name, ("msg_id",))
        rows = session.rows(f'select * from "{table["nspname"]}"."{name}"')
        found[name] = {tuple(row[column] for column in key): row for row in rows}
    return found


@contextmanager
def watching(session: Session) -> Iterator[Changes]:
    """What differs at the end of the block from what was at its beginning."""
    seen = Changes()
    before = _look(session)
    last_event = session.value("select coalesce(max(id), 0) from realtime.messages")
    seen.now.first = session.value("select clock_timestamp()")
    yield seen
    seen.now.last = session.value("select clock_timestamp()")
    after = _look(session)
    for table in before.keys() | after.keys():
        old, new = before.get(table, {}), after.get(table, {})
        for key in old.keys() | new.keys():
            if key not in old:
                seen.added.setdefault(table, {})[key] = _without_nulls(new[key])
            elif key not in new:
                seen.removed.setdefault(table, {})[key] = _without_nulls(old[key])
            elif old[key] != new[key]:
                seen.changed.setdefault(table, {})[key] = {
                    column: value for column, value in new[key].items() if value != old[key][column]
                }
    for row in session.rows("select * from realtime.messages where id > %s order by id", last_event):
        payload = dict(row["payload"])
        assert row["topic"] == f"pgflow:run:{payload.pop('run_id')}"
        assert row["private"] is False
        seen.events.append((row["event"], payload))


def _without_nulls(row: Row) -> Row:
    return {column: value for column, value in row.items() if value is not None}


@contextmanager
def unchanged(session: Session) -> Iterator[None]:
    """Nothing may be changed, and no event sent, by the block."""
    before = session.everything()
    events = session.value("select count(*) from realtime.messages")
    yield
    assert session.everything() == before
    assert session.value("select count(*) from realtime.messages") == events


@contextmanager
def without_triggers(session: Session) -> Iterator[None]:
    """Make a state that only a superuser without triggers can make."""
    session.execute("set session_replication_role = replica")
    yield
    session.execute("reset session_replication_role")
