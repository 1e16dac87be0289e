"""Step 28: a number for every run, and the terminal identity of those that have ended."""

from __future__ import annotations

import sqlite3

from pgflow_migrate.work_center.javascript import Value
from pgflow_migrate.work_center.revision import compile_only
from pgflow_migrate.work_center.values import Refused, bound, rows, shown

_NUMBER = """
    update runs set
      ordinal = ?,
      terminal_status = case when status != 'running' then status else terminal_status end,
      terminal_at = case when status != 'running' then coalesce(ended_at, started_at) else terminal_at end
    where id = ?
"""


def number_runs(connection: sqlite3.Connection) -> None:
    """Count the runs of each action by the time they began.

    Raises:
        Refused: a key cannot be read.
        sqlite3.Error: the store would not have it.
    """
    compile_only(connection, _NUMBER)
    # All at once, as the program: the rows that are read are those that are written.
    read = list(rows(connection.execute("select id, action_id from runs order by action_id, started_at, id")))
    ordinals: dict[Value, float] = {}
    for row in read:
        action = row["action_id"]
        # To the program every blob is an object of its own, so no two runs have the same blob as action.
        ordinal = 1.0 if isinstance(action, bytes) else ordinals.get(_key(action), 0.0) + 1
        ordinals[_key(action)] = ordinal
        try:
            connection.execute(_NUMBER, (ordinal, bound(row["id"], "id")))
        except sqlite3.IntegrityError as error:
            raise Refused(f"run {shown(row['id'])}: {error}") from error


def _key(value: Value) -> float | str | bytes | None:
    if isinstance(value, (float, str, bytes)) or value is None:
        return value
    raise TypeError(f"no column holds {value!r}")
