"""What differs between two signatures, in words.

Keys and column names are named, values never are: a message body may hold anything.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from pgflow_migrate.replay.signature import VERSION, Rows, Signature

_MANY = 5

# The upgrade installs tables and functions here; everything else of the catalogue stays.
_UPGRADED = re.compile(r"schema (pgflow|pgflow_migrate):|[a-z ]+ (pgflow|pgflow_migrate)\.")
_NEW_COLUMNS: dict[str, set[str]] = {
    "pgflow.runs": set(),  # start_flow() returns them: none, so that sessions that have it compiled go on
    "pgflow.steps": {"queue_name"},
    "pgflow.step_tasks": {"queue_name", "current_claim_id"},
}


def differences(before: Signature, after: Signature) -> tuple[str, ...]:
    """Everything that differs, one sentence each; empty when nothing does."""
    return (
        *mapping_differences("", before.catalogue, after.catalogue),
        *_tables(before.tables, after.tables),
        *mapping_differences("sequence ", before.sequences, after.sequences),
    )


def history_differences(
    before: Signature, after: Signature, changes: Collection[str] = ()
) -> tuple[str, ...]:
    """What an upgrade changed and should not have.

    It may add its columns to steps and tasks, install objects in schema pgflow and keep its ledger.
    Every value of every row that was there, every queue, archive, sequence and membership has to stay. Queue
    tables must not even be rewritten, nor, from queue identity on, any other.

    Args:
        before: taken before the upgrade.
        after: taken after it.
        changes: columns that must change, as ``schema.table.column``.
    """
    foreign = tuple(
        mapping_differences("", without_upgraded(before.catalogue), without_upgraded(after.catalogue))
    )
    kept = {
        name: rows for name, rows in after.tables.items() if name in before.tables or not _installed(name)
    }
    rewritten = "queue_name" not in before.tables["pgflow.steps"].columns
    before_tables, after_tables = (
        {name: _comparable(name, rows, rewritten) for name, rows in tables.items() if not _ledger(name)}
        for tables in (before.tables, kept)
    )
    return (
        *foreign,
        *_new_columns(before.tables, after.tables),
        *_tables(before_tables, after_tables, added_columns=True, ignored=changes),
        *_expected(before.tables, after.tables, changes),
        *mapping_differences("sequence ", before.sequences, after.sequences),
    )


def without_upgraded(facts: Mapping[str, str]) -> dict[str, str]:
    """Facts about the objects that an upgrade leaves alone."""
    return {name: text for name, text in facts.items() if not _UPGRADED.match(name)}


def _installed(table: str) -> bool:
    return table.startswith(("pgflow.", "pgflow_migrate."))


def _ledger(table: str) -> bool:
    return table.startswith("pgflow_migrate.")


def _comparable(name: str, rows: Rows, rewritten: bool) -> Rows:
    """Where tables of pgflow are rewritten their row versions say nothing."""
    if not rewritten or not _installed(name):
        return rows
    place = rows.columns.index(VERSION)
    return replace(
        rows,
        columns=rows.columns[:place],
        rows=tuple(row[:place] for row in rows.rows),
    )


def mapping_differences(prefix: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    """What is gone, new or changed, each a text that begins with ``prefix``."""
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"{prefix}{name} is gone"
        elif name not in before:
            yield f"{prefix}{name} is new"
        elif before[name] != after[name]:
            yield f"{prefix}{name} changed"


def _tables(
    before: Mapping[str, Rows],
    after: Mapping[str, Rows],
    *,
    added_columns: bool = False,
    ignored: Collection[str] = (),
) -> Iterator[str]:
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield f"table {name} is gone"
        elif name not in before:
            yield f"table {name} is new"
        elif before[name] != after[name]:
            yield from _one_table(name, before[name], after[name], added_columns, ignored)


def _one_table(
    name: str, before: Rows, after: Rows, added_columns: bool, ignored: Collection[str]
) -> Iterator[str]:
    lost = [column for column in before.columns if column not in after.columns]
    new = [column for column in after.columns if column not in before.columns]
    if lost:
        yield f"table {name} lost column {', '.join(lost)}"
    if new and not added_columns:
        yield f"table {name} gained column {', '.join(new)}"
    if before.key != after.key:
        yield f"table {name} has another primary key"
        return
    compared = [c for c in before.columns if c in after.columns and f"{name}.{c}" not in ignored]
    old, now = before.by_key(), after.by_key()
    yield from _keys(name, "lost", before, [key for key in old if key not in now])
    yield from _keys(name, "gained", before, [key for key in now if key not in old])
    changed: dict[tuple[str, ...], list[tuple[str | None, ...]]] = {}
    for key in old.keys() & now.keys():
        was = dict(zip(before.columns, old[key], strict=True))
        is_ = dict(zip(after.columns, now[key], strict=True))
        columns = tuple(column for column in compared if was[column] != is_[column])
        if columns:
            changed.setdefault(columns, []).append(key)
    for columns, keys in sorted(changed.items()):
        yield from _keys(name, f"changed {', '.join(columns)} in", before, keys)


def _keys(name: str, verb: str, rows: Rows, keys: list[tuple[str | None, ...]]) -> Iterator[str]:
    if not keys:
        return
    if not rows.key:
        yield f"table {name} {verb} {len(keys)} rows"
        return
    shown = ", ".join("/".join(part or "" for part in key) for key in sorted(keys, key=str)[:_MANY])
    more = ", …" if len(keys) > _MANY else ""
    yield f"table {name} {verb} {len(keys)} rows ({'/'.join(rows.key)} {shown}{more})"


def _new_columns(before: Mapping[str, Rows], after: Mapping[str, Rows]) -> Iterator[str]:
    for name, columns in _NEW_COLUMNS.items():
        expected = columns - set(before[name].columns)
        new = set(after[name].columns) - set(before[name].columns)
        if new != expected:
            yield f"table {name} gained {sorted(new)} instead of {sorted(expected)}"


def _expected(
    before: Mapping[str, Rows], after: Mapping[str, Rows], changes: Collection[str]
) -> Iterator[str]:
    for change in changes:
        table, _, column = change.rpartition(".")
        if table not in before or column not in before[table].columns or table not in after:
            yield f"column {change} should change but is not there"
        elif _column(before[table], column) == _column(after[table], column):
            yield f"column {change} should change and did not"


def _column(rows: Rows, column: str) -> dict[tuple[str | None, ...], str | None]:
    place = rows.columns.index(column)
    return {key: row[place] for key, row in rows.by_key().items()}
