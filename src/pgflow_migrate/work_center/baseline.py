"""A store at version 22 with the tables that the chain needs, for fixtures and for comparison."""

from __future__ import annotations

import sqlite3

from pgflow_migrate import resources
from pgflow_migrate.work_center.revision import statements


def create(connection: sqlite3.Connection, *, example: bool = False) -> None:
    """Create the tables of version 22 in an empty database, in the transaction that there is.

    Args:
        connection: to the database.
        example: whether to put some rows in: ``fixtures/work-center/example-22.sql``.
    """
    folder = resources.fixtures() / "work-center"
    for name in ("base-22.sql", *(["example-22.sql"] if example else [])):
        for statement in statements((folder / name).read_text(encoding="utf-8")):
            connection.execute(statement)
