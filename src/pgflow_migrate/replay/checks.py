"""Queries on an upgraded database and what they must give."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg

from pgflow_migrate.layout import plural
from pgflow_migrate.releases import catalogue
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.releases.comparison import compare
from pgflow_migrate.replay.scenario import Check
from pgflow_migrate.replay.work import work_off

# Facts that hold in every upgraded database: each query counts the exceptions.
_IDENTITY = {
    "Steps whose queue is not the canonical name of their flow": (
        "select count(*) from pgflow.steps where queue_name is distinct from lower(flow_slug)"
    ),
    "Tasks whose queue is not the canonical name of their flow": (
        "select count(*) from pgflow.step_tasks where queue_name is distinct from lower(flow_slug)"
    ),
    "Queue messages with more than one task": (
        "select count(*) from (select from pgflow.step_tasks where message_id is not null"
        " group by queue_name, message_id having count(*) > 1) several"
    ),
}

_PROTOCOL = {
    "Tasks with a claim": "select count(*) from pgflow.step_tasks where current_claim_id is not null",
    "Runs that do not speak protocol 1": "select count(*) from pgflow.run_work",
    "Claims": "select count(*) from pgflow.task_claims",
}

# Which table's grants a new table gets, see alembic/sql/dirty_runs/new_tables.sql.
_BESIDE = {"runs": "run_work", "step_tasks": "task_claims"}


def identity_differences(connection: psycopg.Connection[Any]) -> Iterator[str]:
    """What contradicts queue identity, one sentence each."""
    yield from _counted(connection, _IDENTITY)


def protocol_differences(connection: psycopg.Connection[Any]) -> Iterator[str]:
    """What contradicts that no run has been given protocol 2, one sentence each."""
    yield from _counted(connection, _PROTOCOL)


def _counted(connection: psycopg.Connection[Any], queries: Mapping[str, str]) -> Iterator[str]:
    for words, query in queries.items():
        ((count,),) = _rows(connection, query)
        if count:
            yield f"{words}: {count}."


def release_differences(
    connection: psycopg.Connection[Any], release: str = HEAD, besides: Collection[str] = ()
) -> tuple[str, ...]:
    """What of schema pgflow is not exactly as in the snapshot of ``release``, one text each.

    Args:
        connection: an open connection.
        release: one that there is a snapshot of.
        besides: differences to leave out: what was different from the old release already, before an upgrade.
            Grants on a table go to the new table beside it, too.
    """
    found = compare(catalogue.snapshot(release), catalogue.read(connection))
    known = {*besides}
    for old, new in _BESIDE.items():
        prefix = f"table {old}: "
        known |= {f"table {new}: {text.removeprefix(prefix)}" for text in besides if text.startswith(prefix)}
    return tuple(text for text in map(str, found) if text not in known)


def check_differences(connection: psycopg.Connection[Any], check: Check) -> Iterator[str]:
    """Run one check; yields a sentence when it does not give what it must."""
    try:
        if check.run:
            connection.execute(check.run.encode())
        for flow_slug in check.work_off:
            work_off(connection, flow_slug)
    except psycopg.Error as error:
        yield f"Check {check.name!r} failed before its query: {_said(error)}"
        return
    try:
        rows = _rows(connection, check.query)
    except psycopg.Error as error:
        # What psycopg itself raises, such as for a time that Python has not, has no SQLSTATE.
        if check.sqlstate is None or error.sqlstate != check.sqlstate:
            yield f"Check {check.name!r} failed with {_said(error)}"
        return
    if check.sqlstate is not None:
        yield f"Check {check.name!r} should fail with {check.sqlstate} and gave {plural(len(rows), 'row')}."
    elif rows != [list(row) for row in check.rows]:
        yield f"Check {check.name!r} gave {rows}, not {[list(row) for row in check.rows]}."


def _rows(connection: psycopg.Connection[Any], query: str) -> list[list[Any]]:
    with connection.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
        cursor.execute(query.encode())
        return [[_cell(value) for value in row] for row in cursor]


def _cell(value: Any) -> Any:
    """A value as TOML can write it: NULL as a text, numbers, texts, tables and lists as they are."""
    if value is None:
        return "NULL"
    if isinstance(value, dict):
        return {key: _cell(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_cell(item) for item in value]
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, (UUID, date)):
        return str(value)
    return value


def _said(error: psycopg.Error) -> str:
    return " ".join([*([error.sqlstate] if error.sqlstate else []), str(error).partition("\n")[0]])
