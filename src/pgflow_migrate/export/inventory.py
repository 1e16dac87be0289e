"""What there is to copy, and what the role may not read of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from pgflow_migrate import __version__
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.export import document
from pgflow_migrate.export.document import DEFAULTS, Column, Header, Index, Pgmq, Queue, Table
from pgflow_migrate.layout import plural
from pgflow_migrate.releases import catalogue
from pgflow_migrate.releases.identify import Identification, identify

_RELATIONS = (Path(__file__).parent / "inventory.sql").read_text(encoding="utf-8")

# The order in which rows can be written: each table after those that it refers to.
_ORDER = (
    *("flows", "steps", "deps", "workers", "worker_functions", "runs", "run_work", "step_states"),
    *("step_tasks", "task_claims"),
)

_TABLES = """
select c.relname::text, has_schema_privilege(n.oid, 'usage') and has_table_privilege(c.oid, 'select'),
  row_security_active(c.oid),
  array(select a.attname::text from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
        order by a.attnum),
  array(select a.attname::text from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated <> ''
        order by a.attnum)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relkind in ('r', 'p')
"""

_FACTS = """
select split_part(current_setting('server_version'), ' ', 1),
  to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), current_user::text
"""

_PGMQ = """
select has_schema_privilege(n.oid, 'usage'),
  (select e.extversion from pg_extension e where e.extname = 'pgmq'),
  exists (
    select from pg_type t join pg_attribute a on a.attrelid = t.typrelid and not a.attisdropped
    where t.typnamespace = n.oid and t.typname = 'message_record' and a.attname = 'last_read_at'
  ),
  array(select p.proname || '(' || oidvectortypes(p.proargtypes) || ')' from pg_proc p
        where p.pronamespace = n.oid),
  array(select c.relname::text from pg_class c where c.relnamespace = n.oid)
from pg_namespace n where n.nspname = 'pgmq'
"""

# PGMQ's own columns of pgmq.meta, in every version.
_META = ("queue_name", "is_partitioned", "is_unlogged", "created_at")

# A plain SQL installation does not say its version: what each release brought, the newest first.
_SINCE = (
    ("1.13", "create_partitioned(text, text, text, integer)"),
    ("1.11", "topic_bindings"),
    ("1.10", "set_vt(text, bigint, timestamp with time zone)"),
    ("1.9", "read_grouped(text, integer, integer)"),
    ("1.8", "notify_insert_throttle"),
    ("1.7", "pop(text, integer)"),
    ("1.6", "acquire_queue_lock(text)"),
    ("1.5 or older", "meta"),
)


@dataclass(frozen=True)
class Inventory:
    """What to copy, in this order.

    Attributes:
        header: of the file.
        tables: pgflow's, then pgmq.meta.
        queues: the tables of queues; their sequences' positions are still to be read.
        names: of the queues that pgflow uses.
        unread: the header's, with the role in the statements.
        retyped: tables and columns of pgflow that have another type than in the release.
    """

    header: Header
    tables: tuple[Table, ...]
    queues: tuple[Queue, ...]
    names: tuple[str, ...]
    unread: tuple[str, ...]
    retyped: frozenset[tuple[str, str]]


@dataclass(frozen=True)
class _Unread:
    """Something that cannot be read.

    Attributes:
        what: what it is.
        cause: why, or the right that is missing.
        role: words that name the role.
        remedy: what else there is to say.
    """

    what: str
    cause: str
    role: str
    remedy: str = ""

    @property
    def anonymous(self) -> str:
        """For the file, which names no role."""
        return f"{self.what}: {self.cause}{self.remedy}."

    @property
    def full(self) -> str:
        """For whoever exports."""
        end = "." if self.remedy else ";"
        return f"{self.what}: {self.cause} {self.role}{self.remedy}{end}"


def take(connection: psycopg.Connection[Any], *, redacted: bool) -> Inventory:
    """Look into the catalogue, and at the names of flows.

    Args:
        connection: in the transaction that the copy is of, its search_path pinned.
        redacted: what the header is to say.

    Raises:
        PgflowMigrateError: there is no pgflow, or a table of it cannot be read: a copy without it is none.
    """
    found = identify(connection)
    if found.closest is None:
        raise PgflowMigrateError(
            "There is no schema pgflow in this database.", "Check the connection string."
        )
    server, taken_at, role = _rows(connection, _FACTS)[0]
    pgflow = _pgflow(connection, found.closest, role)
    names = _queue_names(connection, pgflow)
    pgmq, unread = _pgmq(connection, role)
    meta: tuple[Table, ...] = ()
    queues: tuple[Queue, ...] = ()
    left_out = list(_left_out(found, pgflow))
    if pgmq is not None:
        meta, lost, told = _meta(connection, role)
        unread += told
        left_out += lost
        queues, lost, told = _queues(connection, names, role)
        unread += told
        left_out += lost
    header = Header(
        release=found.release,
        closest=found.closest,
        server=server,
        pgmq=pgmq,
        taken_at=taken_at,
        redacted=redacted,
        written_by=__version__,
        left_out=tuple(left_out),
        unread=tuple(one.anonymous for one in unread),
    )
    retyped = (
        difference.subject.removeprefix("column ").split(".", 1)
        for difference in found.differences
        if difference.attribute == "type" and difference.subject.startswith("column ")
    )
    return Inventory(
        header=header,
        tables=(*pgflow, *meta),
        queues=queues,
        names=names,
        unread=tuple(one.full for one in unread),
        retyped=frozenset((table, column) for table, column in retyped),
    )


def _pgflow(connection: psycopg.Connection[Any], release: str, role: str) -> tuple[Table, ...]:
    """The release's own tables and columns. What somebody added to them is not pgflow's."""
    own = {name for name in catalogue.snapshot(release).objects if name.startswith(("table ", "column "))}
    tables, grants, hidden = [], [], []
    for name, readable, filtered, columns, _ in _rows(connection, _TABLES, ("pgflow",)):
        if f"table {name}" not in own:
            continue
        if not readable:
            grants.append(f"pgflow.{name}")
        elif filtered:
            hidden.append(f"pgflow.{name}")
        tables.append(Table("pgflow", name, tuple(c for c in columns if f"column {name}.{c}" in own)))
    if grants:
        grantee = sql.Identifier(role).as_string(None)
        raise PgflowMigrateError(
            f'Role "{role}" may not read {", ".join(sorted(grants))}.',
            f"Grant it: grant usage on schema pgflow to {grantee};"
            f" grant select on all tables in schema pgflow to {grantee};",
        )
    if hidden:
        raise PgflowMigrateError(
            f'Row security hides rows of {", ".join(sorted(hidden))} from role "{role}".',
            "Export as a role with bypassrls or, unless it is forced, as the owner.",
        )
    return tuple(sorted(tables, key=lambda table: (_ORDER.index(table.name), table.name)))


def _left_out(found: Identification, tables: Sequence[Table]) -> Iterator[str]:
    """Objects that were added to schema pgflow: a copy is of rows."""
    more: Iterable[str] = [
        difference.subject
        for difference in found.differences
        if difference.kind == "extra" and not difference.attribute
    ]
    more = sorted({subject for subject in more if not subject.startswith(("schema", "cron job"))})
    yield from (f"{subject} in schema pgflow was added to the release." for subject in more)
    there = {f"table {table.name}" for table in tables}
    lost = {f"table {table}" for table in _ORDER if f"table {table}" in _objects(found)} - there
    yield from (f"{subject} of the release is missing in schema pgflow." for subject in sorted(lost))


def _objects(found: Identification) -> frozenset[str]:
    return frozenset(catalogue.snapshot(found.closest or "").objects)


def _queue_names(connection: psycopg.Connection[Any], tables: Sequence[Table]) -> tuple[str, ...]:
    """Of every flow, and of every queue that a row names."""
    columns = {table.name: table.columns for table in tables}
    selects = [
        sql.SQL("select lower({}) from pgflow.{}").format(sql.Identifier(column), sql.Identifier(table))
        for table, column in (
            *(("flows", "flow_slug"), ("steps", "queue_name")),
            *(("step_tasks", "flow_slug"), ("step_tasks", "queue_name")),
        )
        if column in columns.get(table, ())
    ]
    if not selects:
        return ()
    cursor = connection.cursor(row_factory=psycopg.rows.tuple_row)
    cursor.execute(sql.SQL(" union ").join(selects))
    return tuple(sorted(name for (name,) in cursor if name is not None))


def _pgmq(connection: psycopg.Connection[Any], role: str) -> tuple[Pgmq | None, tuple[_Unread, ...]]:
    rows = _rows(connection, _PGMQ)
    if not rows:
        return None, ()
    usage, extension, last_read_at, functions, relations = rows[0]
    objects = {*functions, *relations}
    version = extension or next((since for since, name in _SINCE if name in objects), "unknown")
    pgmq = Pgmq(version, "extension" if extension else "sql", last_read_at)
    if not usage:
        grantee = sql.Identifier(role).as_string(None)
        return None, (_Unread("Schema pgmq", "grant usage on schema pgmq", f"to {grantee}"),)
    return pgmq, ()


def _meta(
    connection: psycopg.Connection[Any], role: str
) -> tuple[tuple[Table, ...], list[str], tuple[_Unread, ...]]:
    """pgmq.meta with PGMQ's own columns, what is left out of it, and whether it cannot be read."""
    for name, readable, filtered, columns, generated in _rows(connection, _TABLES, ("pgmq",)):
        if name != "meta":
            continue
        if not readable or filtered:
            return (), [], (_remedy("meta", role, hidden=readable),)
        left_out = [f"The column pgmq.meta.{column}." for column in columns if column not in _META]
        left_out += (f"The generated column pgmq.meta.{column}." for column in generated)
        return (Table("pgmq", "meta", tuple(c for c in columns if c in _META)),), left_out, ()
    return (), [], ()


def _queues(
    connection: psycopg.Connection[Any], names: Sequence[str], role: str
) -> tuple[tuple[Queue, ...], list[str], tuple[_Unread, ...]]:
    """The queues' tables, what is left out of them, and what cannot be read."""
    queues, left_out, unread = [], list[str](), list[_Unread]()
    for row in _rows(connection, _RELATIONS, {"queues": list(names)}):
        queue, part, name, kind, unlogged, readable, hidden, member, columns, indexes, *of_sequence = row
        columns = columns or ()
        if kind != "r":
            left_out.append(f"pgmq.{name} is no ordinary table.")
            continue
        if not readable or hidden:
            unread.append(_remedy(name, role, hidden=readable))
            continue
        left_out += (f"The default of pgmq.{name}.{c[0]}." for c in columns if c[4] not in DEFAULTS)
        left_out += (f"The generated column pgmq.{name}.{c[0]}." for c in columns if c[5])
        sequence_name, sequence_readable, sequence_member = of_sequence
        if sequence_name is not None and not sequence_readable:
            unread.append(_remedy(sequence_name, role, hidden=False, kind="sequence "))
        kept = {c[0] for c in columns if not c[5]}
        queues.append(
            Queue(
                queue=queue,
                part=part,
                unlogged=unlogged,
                member=member,
                attributes=tuple(
                    Column(c[0], c[1], c[2], c[3], c[4] if c[4] in DEFAULTS else "")
                    for c in columns
                    if not c[5]
                ),
                indexes=tuple(
                    Index(i["name"], tuple(i["columns"]), i["unique"], i["primary"])
                    for i in indexes
                    if kept.issuperset(i["columns"])
                ),
                sequence=None
                if sequence_name is None
                else document.Sequence(
                    sequence_name, 0 if sequence_readable else None, False, sequence_member
                ),
            )
        )
    return tuple(queues), left_out, tuple(unread)


def with_position(connection: psycopg.Connection[Any], queue: Queue) -> Queue:
    """The same with the position of its sequence, where that can be read."""
    sequence = queue.sequence
    if sequence is None or sequence.last_value is None:
        return queue
    cursor = connection.cursor(row_factory=psycopg.rows.tuple_row)
    cursor.execute(
        sql.SQL("select last_value, is_called from {}").format(sql.Identifier("pgmq", sequence.name))
    )
    last_value, is_called = cursor.fetchall()[0]
    return replace(queue, sequence=replace(sequence, last_value=last_value, is_called=is_called))


def _remedy(name: str, role: str, *, hidden: bool, kind: str = "") -> _Unread:
    if hidden:
        return _Unread(
            f"pgmq.{name}",
            "row security hides rows",
            f'from role "{role}"',
            "; export as a role with bypassrls",
        )
    target = sql.Identifier("pgmq", name).as_string(None)
    grantee = sql.Identifier(role).as_string(None)
    return _Unread(f"pgmq.{name}", f"grant select on {kind}{target}", f"to {grantee}")


def summary(header: Header) -> str:
    """What the file is of, in one line."""
    release = header.release or f"of no known release, the closest being {header.closest}"
    pgmq = "no PGMQ" if header.pgmq is None else f"PGMQ {header.pgmq.version} ({header.pgmq.form})"
    redacted = ", redacted" if header.redacted else ""
    unread = f", {plural(len(header.unread), 'thing')} unread" if header.unread else ""
    return f"pgflow {release} on PostgreSQL {header.server} with {pgmq}, {header.taken_at}{redacted}{unread}"


def _rows(connection: psycopg.Connection[Any], query: str, parameters: Any = None) -> list[Any]:
    cursor = connection.cursor(row_factory=psycopg.rows.tuple_row)
    cursor.execute(query.encode(), parameters)
    return cursor.fetchall()
