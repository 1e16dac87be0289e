"""The optional pruning helper ``pgflow.prune_data_older_than(interval)``: which one is installed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from psycopg.rows import dict_row

from pgflow_migrate import database, resources
from pgflow_migrate.errors import PgflowMigrateError

Kind = Literal[
    "absent", "stock", "original", "customised", "unreadable", "other-arguments", "former", "queue-aware"
]

SIGNATURE = "pgflow.prune_data_older_than(interval)"
STOCK_MD5S = ("d87aba89f910570d5a3c17ba1243eb76", "fcba8d05326f47f4b94801fadc18a15c")
"""md5 of the body documented since pgflow 0.7.0: of the very text, and of it normalised."""
ORIGINAL_MD5S = ("87cdbe74c9a3ce387bf381c2445412dd", "e7cbf1f31d65d4cb3020b74b015072da")
"""The same of the body documented from 0.2.3 to 0.6.1."""
FORMER_MD5S = ("0a1018a18bd0e2e8171621b1e9c03406",)
"""Of the bodies that were shipped here before there was protocol 2, normalised."""

_MUST_CHANGE: tuple[Kind, ...] = ("stock", "original", "customised", "unreadable", "other-arguments")

_OWN_BODY = re.compile(r"\$prune\$(.*)\$prune\$", re.DOTALL)
_REPLACEABLE = re.compile(r"(replaceable_md5s constant text\[\] := array\[\n)")

_FACTS = """
select current_database()::text as database,
  exists (select from pg_namespace n where n.nspname = 'pgflow') as pgflow,
  exists (
    select
    from pg_attribute a
    join pg_class c on c.oid = a.attrelid
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'pgflow' and c.relname = 'step_tasks'
      and a.attname = 'queue_name' and not a.attisdropped
  ) as queue_identity,
  exists (
    select
    from pg_class c
    join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'pgflow' and c.relname = 'run_work'
  ) as protocols,
  has_column_privilege('pg_catalog.pg_proc', 'prosrc', 'select') as bodies_readable
"""

_FUNCTIONS = """
select oidvectortypes(p.proargtypes) as arguments, p.proconfig as settings,
  p.prokind = 'f' and p.prorettype = 'void'::regtype and l.lanname = 'plpgsql' and p.provolatile = 'v'
    and not p.prosecdef as plain
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
join pg_language l on l.oid = p.prolang
where n.nspname = 'pgflow' and p.proname = 'prune_data_older_than'
order by 1
"""

# Normalised as the audit does: lower case, no comments, no white space.
_BODY = """
select md5(p.prosrc) as exactly,
  md5(regexp_replace(
    regexp_replace(lower(p.prosrc collate "C"), '--[^' || chr(10) || ']*', '', 'g'), '[[:space:]]', '', 'g'
  )) as normalised
from pg_proc p
join pg_namespace n on n.oid = p.pronamespace
where n.nspname = 'pgflow' and p.proname = 'prune_data_older_than'
  and oidvectortypes(p.proargtypes) = 'interval'
"""


@dataclass(frozen=True)
class Helper:
    """A function of the helper's name.

    Attributes:
        signature: schema, name and types of arguments.
        kind: ``absent``; ``stock``, documented since pgflow 0.7.0; ``original``, documented from 0.2.3 to
            0.6.1; ``customised``, none of these; ``unreadable``, this role may not see its body;
            ``other-arguments``, a function of one's own; ``former``, the queue-aware one from before
            protocol 2, whose old runs stop it; ``queue-aware``, the one that is shipped here.
        to_do: whether it has to be replaced or adapted now.
    """

    signature: str
    kind: Kind
    to_do: bool


@dataclass(frozen=True)
class PruneHelpers:
    """What a database has of pruning helpers.

    Attributes:
        database: its name.
        queue_identity: whether it has queue identity, that is, whether it was upgraded.
        helpers: the helper, absent perhaps, then functions of its name with other arguments.
    """

    database: str
    queue_identity: bool
    helpers: tuple[Helper, ...]

    @property
    def to_do(self) -> bool:
        """Whether one of them has to be replaced or adapted now."""
        return any(helper.to_do for helper in self.helpers)


def script(stock_md5s: Collection[str] = ()) -> str:
    """The SQL that installs the queue-aware helper, one statement.

    Args:
        stock_md5s: md5 sums of more bodies, normalised, that it may replace.

    Raises:
        ValueError: a sum is not 32 hexadecimal digits.
    """
    for md5 in stock_md5s:
        if not re.fullmatch("[0-9a-f]{32}", md5):
            raise ValueError(f"not an md5 sum: {md5!r}")
    text = (resources.helpers() / "prune_data_older_than.sql").read_text(encoding="utf-8")
    added = "".join(f"    '{md5}',\n" for md5 in stock_md5s)
    return _REPLACEABLE.sub(lambda match: match[0] + added, text, count=1)


def own_md5() -> str:
    """The md5 sum of the shipped helper's body, normalised."""
    body = _OWN_BODY.search(script())
    if body is None:
        raise ValueError("helpers/prune_data_older_than.sql has no body between $prune$ and $prune$")
    return hashlib.md5(normalised(body[1]).encode(), usedforsecurity=False).hexdigest()


def normalised(body: str) -> str:
    """A body, of ASCII, in lower case without comments and white space."""
    return re.sub(r"\s", "", re.sub(r"--[^\n]*", "", body.lower()))


def find(
    target: str | psycopg.Connection[Any],
    *,
    stock_md5s: Collection[str] = (),
    original_md5s: Collection[str] = (),
) -> PruneHelpers:
    """Look for the helper; changes nothing and needs no rights.

    Args:
        target: a connection string in any spelling, or a connection.
        stock_md5s: md5 sums of more bodies that count as the documented one.
        original_md5s: the same for the one documented before.

    Raises:
        PgflowMigrateError: no connection, or no schema pgflow.
    """
    if isinstance(target, str):
        with database.connect(target, read_only=True) as connection:
            return find(connection, stock_md5s=stock_md5s, original_md5s=original_md5s)
    with target.transaction(), target.cursor(row_factory=dict_row) as cursor:
        cursor.execute("set local search_path = pg_catalog, pg_temp")
        (facts,) = cursor.execute(_FACTS.encode()).fetchall()
        if not facts["pgflow"]:
            raise PgflowMigrateError(
                f'There is no pgflow in database "{facts["database"]}".', "Check the connection string."
            )
        functions = cursor.execute(_FUNCTIONS.encode()).fetchall()
        bodies = cursor.execute(_BODY.encode()).fetchall() if facts["bodies_readable"] else []

    kind: Kind = "absent"
    for function in functions:
        if function["arguments"] == "interval":
            known: dict[Kind, set[str]] = {
                "stock": {*STOCK_MD5S, *stock_md5s},
                "original": {*ORIGINAL_MD5S, *original_md5s},
            }
            kind = _kind(function, bodies[0], known) if bodies else "unreadable"
    upgraded = facts["queue_identity"]
    others = [f["arguments"] for f in functions if f["arguments"] != "interval"]
    return PruneHelpers(
        database=facts["database"],
        queue_identity=upgraded,
        helpers=(
            Helper(
                SIGNATURE,
                kind,
                (upgraded and kind in _MUST_CHANGE) or (facts["protocols"] and kind == "former"),
            ),
            *(Helper(f"pgflow.prune_data_older_than({a})", "other-arguments", upgraded) for a in others),
        ),
    )


def _kind(function: dict[str, Any], body: dict[str, Any], documented: dict[Kind, set[str]]) -> Kind:
    sums = {body["exactly"], body["normalised"]}
    if function["plain"] and function["settings"] is None:
        for kind, known in documented.items():
            if sums & known:
                return kind
    if function["plain"] and function["settings"] == ["search_path=pg_catalog, pg_temp"]:
        if own_md5() in sums:
            return "queue-aware"
        if sums & set(FORMER_MD5S):
            return "former"
    return "customised"
