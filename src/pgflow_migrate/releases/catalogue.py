"""What is in a schema: read from a server, or from the snapshot of a release.

A catalogue is flat: every object (a column and a constraint too) has a name such as
``function start_flow(text, jsonb, uuid)`` and a few attributes. An attribute that has its usual value, as
:data:`USUAL` has it, is left out; so snapshots are short and an attribute that is added later needs no
new snapshots.

To make the snapshot of another release, take an untouched database of it (with the cron jobs) and run::

    python -m pgflow_migrate.releases.catalogue DSN > src/pgflow_migrate/releases/snapshots/RELEASE.json
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from pgflow_migrate import database
from pgflow_migrate.releases.chain import REVISIONS, release_of

Attributes = Mapping[str, Any]

SCHEMA = "pgflow"

_ACCESS: Attributes = {"granted": [], "revoked": []}

USUAL: Mapping[str, Attributes] = {
    "schema": _ACCESS,
    "table": {"kind": "table", "persistence": "permanent", "row security": "off", **_ACCESS},
    "column": {
        "nullable": False,
        "default": None,
        "identity": None,
        "generated": None,
        "collation": None,
        **_ACCESS,
    },
    "constraint": {},
    "index": {"state": "valid"},
    "trigger": {"enabled": "origin"},
    "policy": {"permissive": True, "using": None, "check": None},
    "sequence": {"cycle": False, **_ACCESS},
    "type": {"nullable": True, "default": None, "checks": []},
    "function": {
        "kind": "function",
        "volatility": "volatile",
        "strict": False,
        "security definer": False,
        "parallel": "unsafe",
        "leakproof": False,
        "cost": 100,
        "rows": 0,
        "settings": [],
        **_ACCESS,
    },
    "cron job": {"active": True},
}
"""The usual value of each attribute, for each kind of object."""

_SNAPSHOTS = Path(__file__).parent / "snapshots"
_CATALOGUE = (Path(__file__).parent / "catalogue.sql").read_text(encoding="utf-8")

# Not to_regclass('cron.job'): it raises where the role may not look into the schema.
_CRON_ACCESS = """
select
  has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select'),
  row_security_active(c.oid)
from pg_class as c
join pg_namespace as n on n.oid = c.relnamespace
where n.nspname = 'cron' and c.relname = 'job'
"""

_CRON_JOBS = """
select
  'cron job',
  coalesce(jobname, 'number ' || jobid),
  jsonb_build_object('schedule', schedule, 'command', command, 'active', active)
from cron.job
where position($1 || '.' in command) > 0
"""

# What decides how PostgreSQL spells a definition. It leaves out the schema of whatever search_path finds.
_AS_IN_SNAPSHOTS = """
set local search_path = pg_catalog, pg_temp;
set local quote_all_identifiers = off;
set local standard_conforming_strings = on;
set local datestyle = 'ISO, MDY';
set local intervalstyle = 'postgres';
set local timezone = 'UTC';
"""

_Row = tuple[str, str, Attributes]


@dataclass(frozen=True)
class Catalogue:
    """The objects of one schema.

    Attributes:
        objects: attributes by ``"kind name"``, without the usual ones.
        sees_cron: whether every cron job was visible; if not, a job that is not listed may exist.
    """

    objects: Mapping[str, Attributes]
    sees_cron: bool = True

    def to_json(self) -> str:
        """The text of a snapshot: a line for each object."""
        lines = (
            f"  {json.dumps(name)}: {json.dumps(attributes, sort_keys=True)}"
            for name, attributes in sorted(self.objects.items())
        )
        return "{\n" + ",\n".join(lines) + "\n}\n"


def kind_of(name: str) -> str:
    """The kind in an object's name: ``column`` for ``column runs.input``."""
    return next(kind for kind in USUAL if name.startswith(f"{kind} "))


def releases() -> tuple[str, ...]:
    """The releases that have a snapshot, in the order of the chain, the oldest first."""
    return tuple(map(release_of, REVISIONS))


def snapshot(release: str) -> Catalogue:
    """The catalogue that a database of ``release`` has.

    Raises:
        FileNotFoundError: there is no snapshot of that release.
    """
    return Catalogue(json.loads(path(release).read_text(encoding="utf-8")))


def path(release: str) -> Path:
    """Where the snapshot of ``release`` is, or would be."""
    return _SNAPSHOTS / f"{release}.json"


def read(connection: psycopg.Connection[Any], schema: str = SCHEMA) -> Catalogue:
    """The catalogue of a schema, which is empty when there is no such schema.

    Needs no rights but to connect, changes nothing, and leaves neither a setting nor a transaction
    behind: it works in a subtransaction of the caller's, or in one of its own, that is rolled back.

    Raises:
        psycopg.Error: the connection failed.
    """
    with connection.transaction(force_rollback=True):
        connection.execute(_AS_IN_SNAPSHOTS)
        cursor = psycopg.RawCursor(connection, row_factory=tuple_row)
        rows: list[_Row] = cursor.execute(_CATALOGUE, [schema]).fetchall()
        jobs, sees_cron = _cron_jobs(cursor, schema)
    objects = {f"{kind} {name}": _unusual(kind, attributes) for kind, name, attributes in [*rows, *jobs]}
    return Catalogue(objects, sees_cron)


def _cron_jobs(cursor: psycopg.RawCursor[Any], schema: str) -> tuple[list[_Row], bool]:
    """The cron jobs that call the schema's functions, and whether none can be hidden."""
    readable, filtered = cursor.execute(_CRON_ACCESS).fetchone() or (False, False)
    if not readable:
        return [], False
    return cursor.execute(_CRON_JOBS, [schema]).fetchall(), not filtered


def _unusual(kind: str, attributes: Attributes) -> dict[str, Any]:
    """The attributes that differ from the usual ones, each value on one line."""
    usual = USUAL[kind]
    plain = {key: _one_line(value) for key, value in attributes.items()}
    return {key: value for key, value in plain.items() if key not in usual or usual[key] != value}


def _one_line(value: Any) -> Any:
    """Undo PostgreSQL's line breaks (it prints CASE on lines of its own)."""
    return re.sub(r"\s*\n\s*", " ", value).strip() if isinstance(value, str) else value


def main(arguments: Iterable[str]) -> None:
    """Print the catalogue of the database that the one argument names."""
    (dsn,) = arguments
    with database.connect(dsn) as connection:
        sys.stdout.write(read(connection).to_json())


if __name__ == "__main__":
    main(sys.argv[1:])
