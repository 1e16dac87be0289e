"""What a step's Python file calls: its SQL files, columns that may be there already, the store itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from alembic import op

from pgflow_migrate import resources
from pgflow_migrate.work_center import progress


@dataclass
class Store:
    """The store that steps run on.

    Attributes:
        connection: in a transaction while a step runs.
        now: the time of the upgrade, in milliseconds since 1970.
        source_schema_version: the version that backfilled rows are said to come from.
        step: the name of the step that runs.
        rows: what the step that runs has inserted, by table.
        on_progress: see :mod:`pgflow_migrate.work_center.progress`.
    """

    connection: sqlite3.Connection
    now: int
    source_schema_version: int
    on_progress: progress.Listener = progress.ignore
    step: str = ""
    rows: dict[str, int] = field(default_factory=dict)

    def run(self, revision: str, *names: str) -> None:
        """See :func:`run_sql`."""
        for name in names:
            text = (resources.revision_sql(revision) / f"{name}.sql").read_text(encoding="utf-8")
            for statement in statements(text):
                self.connection.execute(statement, _parameters(statement, {"now": self.now}))


def store() -> Store:
    """The store that the step which runs now is applied to."""
    found: Store = op.get_context().opts["work_center_store"]  # the environment has put it there
    return found


def run_sql(revision: str, *names: str) -> None:
    """Execute files of ``alembic/sql/<revision>/``, in the order given; ``:now`` is the time of the upgrade.

    Args:
        revision: the revision's id, which is also the folder's name.
        names: paths below that folder, without the ending ``.sql``.

    Raises:
        FileNotFoundError: a file is missing from the installation.
        sqlite3.Error: a statement failed.
    """
    store().run(revision, *names)


def add_missing_columns(revision: str, table: str, *columns: str) -> None:
    """Execute ``columns/<column>.sql`` for each column that ``table`` does not have."""
    for column in columns:
        if not has_column(store().connection, table, column):
            run_sql(revision, f"columns/{column}")


def has_column(connection: sqlite3.Connection, table: str, column: str) -> bool:
    """Whether ``table`` has ``column``, spelt exactly so."""
    found = connection.execute("select name from pragma_table_info(?)", (table,))
    return column in {name for (name,) in found}


def statements(text: str) -> Iterator[str]:
    """The statements of a SQL file. (executescript() would commit the transaction that is open.)"""
    statement = ""
    for line in text.splitlines(keepends=True):
        if not statement and (not line.strip() or line.startswith("--")):
            continue
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        raise ValueError(f"a SQL file ends within a statement: {statement[:60]!r}")


def compile_only(connection: sqlite3.Connection, *queries: str) -> None:
    """Let SQLite read statements with ``?`` without executing them.

    The program prepares its statements before it has a row for them, so a column that is missing fails a step
    on an empty store, too.

    Raises:
        sqlite3.OperationalError: a table or a column is missing.
    """
    for query in queries:
        connection.execute(f"explain {query}", (None,) * query.count("?"))


def _parameters(statement: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if f":{name}" in statement}
