"""What a database has of the contract: its limits, the functions and guards of its inventory. Read-only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from pgflow_migrate import database, reading
from pgflow_migrate.dirty_runs import limits
from pgflow_migrate.dirty_runs.inventory import INVENTORY, Kind
from pgflow_migrate.dirty_runs.status import refuse_without_protocol

FUNCTIONS: tuple[Kind, ...] = ("entry point", "helper", "v2 entry", "v2 internal")

_FUNCTION = "select to_regprocedure('pgflow.' || %s) is not null"
# A trigger that is switched off, or on in replicas alone, guards nothing; an action of a foreign key goes by
# its constraint.
_TRIGGER = """
select exists (
  select from pg_trigger t
  where t.tgname = %(name)s and t.tgrelid = to_regclass('pgflow.' || %(table)s) and t.tgenabled in ('O', 'A')
) or exists (
  select from pg_constraint c
  where c.conname = %(name)s and c.conrelid = to_regclass('pgflow.' || %(table)s)
)
"""


def differing_limits(dsn: str) -> tuple[str, ...]:
    """Limits that the database enforces otherwise than the contract says, in words; none when all is well.

    Args:
        dsn: a connection string in any spelling.

    Raises:
        PgflowMigrateError: it could not look, or there is no protocol 2 in this database.
    """
    said = {one.name: one.value for one in limits.LIMITS if one.enforced == "sql"} | {
        "contract_version": limits.CONTRACT_VERSION,
        "protocol_version": limits.PROTOCOL_VERSION,
    }
    with _looking(dsn) as connection:
        row = connection.execute("select pgflow._v2_limits()").fetchone()
    found: dict[str, Any] = row[0] if row else {}
    return tuple(
        f"{name}: {said.get(name, 'nothing')} in the contract, {found.get(name, 'nothing')} in the database"
        for name in {**said, **found}
        if said.get(name) != found.get(name)
    )


def installed(dsn: str) -> dict[str, bool]:
    """Whether the database has each function and trigger of the inventory, by name.

    Jobs of cron and helpers are left out: it is the owner who decides about them.

    Args:
        dsn: a connection string in any spelling.

    Raises:
        PgflowMigrateError: it could not look, or there is no protocol 2 in this database.
    """
    with _looking(dsn) as connection:
        found = {}
        for writer in INVENTORY:
            if writer.kind in FUNCTIONS:
                row = connection.execute(_FUNCTION, (writer.name,)).fetchone()
            elif writer.kind == "trigger":
                name, _, table = writer.name.partition(" on ")
                row = connection.execute(_TRIGGER.encode(), {"name": name, "table": table}).fetchone()
            else:
                continue
            found[writer.name] = row == (True,)
    return found


@contextmanager
def _looking(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with database.connect(dsn, read_only=True) as connection, reading.explained("look at protocol 2"):
        refuse_without_protocol(connection)
        yield connection
