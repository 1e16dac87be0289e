"""Why an upgrade stopped, in the words of the toolkit: from SQLSTATEs to errors with an exit code."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy as sa
from alembic.util import CommandError
from psycopg.rows import dict_row

from pgflow_migrate import database
from pgflow_migrate.audit import refusal
from pgflow_migrate.errors import (
    BlockedError,
    Blocker,
    FenceError,
    LiveWorker,
    LiveWorkersError,
    PgflowMigrateError,
    SqlFileError,
)
from pgflow_migrate.upgrade.session import Fence
from pgflow_migrate.verify import violations

UNCHANGED = "The database is unchanged."

LIVE_WORKERS = "PF003"
"""What a live worker is refused with (alembic/sql/queue_identity/live_workers.sql)."""

RUNS_OF_PROTOCOL_2 = "PF008"
"""What a step back from dirty_runs is refused with (alembic/sql/dirty_runs/back/refuse.sql)."""

_BLOCKERS = Path(__file__).with_name("blockers.sql").read_text(encoding="utf-8")

# Who owns what the upgrade has to change, as far as we do not have the rights of that role.
_OWNERS = """
with owned as (
  select n.nspowner as owner from pg_catalog.pg_namespace n where n.nspname = 'pgflow'
  union all
  select c.relowner from pg_catalog.pg_class c
  where c.relnamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = 'pgflow')
    and c.relkind in ('r', 'p')
  union all
  select p.proowner from pg_catalog.pg_proc p
  where p.pronamespace = (select n.oid from pg_catalog.pg_namespace n where n.nspname = 'pgflow')
)
select current_user::text as role, pg_catalog.pg_get_userbyid(o.owner)::text as owner,
  pg_catalog.pg_has_role(o.owner, 'member') as member,
  (select r.rolsuper from pg_catalog.pg_roles r where r.oid = o.owner) as superuser
from owned o
where not pg_catalog.pg_has_role(o.owner, 'usage')
group by o.owner
order by count(*) desc, 2
"""


# What the upgrade needs beyond the rights of pgflow's owner, as far as it is missing. LOCK ... IN SHARE
# MODE wants any right to change rows.
_GRANTS = """
with needed as (
  select c.oid, 'pgmq.' || pg_catalog.quote_ident(c.relname) as name, c.relname,
    pg_catalog.has_table_privilege(c.oid, 'select') as may_read,
    pg_catalog.has_table_privilege(c.oid,
      case when pg_catalog.current_setting('server_version_num')::int < 170000
        then 'update, delete, truncate' else 'update, delete, truncate, maintain' end
    ) as may_lock
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'pgmq' and c.relkind in ('r', 'p')
    and (c.relname = 'meta' or c.relname in (select 'q_' || lower(f.flow_slug) from pgflow.flows f))
), statements as (
  select 1 as place, pg_catalog.format('create on database %I', pg_catalog.current_database()) as privilege
  where not exists (select from pg_catalog.pg_namespace n where n.nspname = 'pgflow_migrate')
    and not pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create')
  union all
  select 2, pg_catalog.format('usage on schema %I', n.nspname)
  from pg_catalog.pg_namespace n
  where n.nspname in ('pgflow_migrate', 'pgmq') and not pg_catalog.has_schema_privilege(n.oid, 'usage')
  union all
  select 3, m.missing || ' on ' || pg_catalog.string_agg(m.name, ', ' order by m.relname <> 'meta', m.name)
  from (
    select pg_catalog.concat_ws(', ',
        case when not d.may_read then 'select' end, case when not d.may_lock then 'update' end
      ) as missing, d.name, d.relname
    from needed d
  ) m
  where m.missing <> ''
  group by m.missing
  union all
  -- What the queues' message ids come from: the preflight reads how far they have got.
  select 4, 'select on sequence ' || pg_catalog.string_agg(
      pg_catalog.format('pgmq.%I', s.relname), ', ' order by s.relname)
  from needed d
  join pg_catalog.pg_depend p on p.refobjid = d.oid and p.deptype = 'i'
    and p.refclassid = 'pg_catalog.pg_class'::regclass and p.classid = 'pg_catalog.pg_class'::regclass
  join pg_catalog.pg_class s on s.oid = p.objid and s.relkind = 'S'
  where not pg_catalog.has_table_privilege(s.oid, 'select')
  having count(*) > 0
  union all
  select 5, pg_catalog.format('select, insert, update, delete on %I.%I', n.nspname, c.relname)
  from pg_catalog.pg_class c
  join pg_catalog.pg_namespace n on n.oid = c.relnamespace
  where n.nspname = 'pgflow_migrate' and c.relname in ('schema_migrations', 'alembic_version')
    and not (
      pg_catalog.has_table_privilege(c.oid, 'select') and pg_catalog.has_table_privilege(c.oid, 'insert')
      and pg_catalog.has_table_privilege(c.oid, 'update') and pg_catalog.has_table_privilege(c.oid, 'delete')
    )
)
select pg_catalog.format('grant %s to %I;', s.privilege, current_user) as statement
from statements s
order by s.place, s.privilege
"""


@contextlib.contextmanager
def explained(dsn: str, fence: Fence, doing: str = "upgrade") -> Iterator[None]:
    """Within it, what the server, psycopg or Alembic raise becomes one of the toolkit's errors.

    To be put around the transaction, so that it is rolled back by then.

    Args:
        dsn: to ask the server who blocks, or who owns what, once more.
        fence: the bounds that were set, for the message.
        doing: ``upgrade`` or ``downgrade``.
    """
    try:
        yield
    except SqlFileError as error:
        raise _explain(error.cause, error, dsn, fence, doing) from error
    except sa.exc.DBAPIError as error:
        if not isinstance(error.orig, psycopg.Error):
            raise
        raise _explain(error.orig, None, dsn, fence, doing) from error
    except psycopg.Error as error:
        raise _explain(error, None, dsn, fence, doing) from error
    except CommandError as error:
        raise PgflowMigrateError(f"{str(error).rstrip('.')}.") from error


def _explain(
    error: psycopg.Error, failed: SqlFileError | None, dsn: str, fence: Fence, doing: str
) -> PgflowMigrateError:
    at = f"{failed.revision}/{failed.file}" if failed else "outside the revisions"
    if isinstance(error, (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)):
        seconds = f"{_budget(fence).total_seconds():g} s"
        what = f"The locks for the {doing} were not obtained within {seconds} ({at})."
        if isinstance(error, psycopg.errors.DeadlockDetected):
            what = f"A deadlock with another session ended the {doing} ({at})."
        elif failed is not None and failed.file == "back/refuse.sql":  # which does not wait
            what = f"A table of protocol 2 is in use ({at})."
        return FenceError(
            what,
            f"{UNCHANGED} It is safe to repeat; pause workers and producers, or raise --lock-timeout and"
            " --max-wait.",
            _blockers(dsn),
        )
    if error.sqlstate == refusal.SQLSTATE:
        return BlockedError(
            f"The preflight refuses: {_text(error)}.",
            f"{UNCHANGED} Mend each finding as its hint says, then repeat.",
            refusal.findings_from_error(error),
        )
    if error.sqlstate == violations.SQLSTATE:
        return PgflowMigrateError(
            f"The {doing} does not pass its own last look: {_text(error)}.",
            f"{UNCHANGED} Look for triggers and event triggers that change what the {doing} writes.",
            tuple(_line(str(violation)) for violation in violations.violations_from_error(error)[:20]),
        )
    if error.sqlstate == LIVE_WORKERS:
        # Not splitlines(): JSON leaves U+2028 and its like as they are.
        lines = (error.diag.message_detail or "").split("\n")
        return LiveWorkersError(
            f"The {doing} refuses: {_text(error)}.",
            f"{_line(error.diag.message_hint or '')} --allow-live-workers overrules this.",
            tuple(LiveWorker(**json.loads(line)) for line in lines),
        )
    if error.sqlstate == RUNS_OF_PROTOCOL_2:
        return BlockedError(
            f"The {doing} refuses: {_text(error)}.", _line(error.diag.message_hint or UNCHANGED)
        )
    if isinstance(error, psycopg.errors.InsufficientPrivilege):
        return _not_entitled(error, at, dsn)
    if error.sqlstate is None or error.sqlstate.startswith(("08", "57")):
        # No COMMIT was sent, so the server rolls back by itself.
        return PgflowMigrateError(
            f"The server ended the {doing} ({at}): {_text(error)}.", f"{UNCHANGED} It is safe to repeat."
        )
    hint = _line(error.diag.message_hint or "")
    return PgflowMigrateError(
        f"The {doing} failed ({at}): {_text(error)} (SQLSTATE {error.sqlstate}).",
        f"{UNCHANGED} {hint}".rstrip(),
        tuple(_line(line) for line in (error.diag.message_detail or "").splitlines()[:20]),
    )


def _budget(fence: Fence) -> timedelta:
    return max(fence.lock_timeout, fence.max_wait)


def _not_entitled(error: psycopg.Error, at: str, dsn: str) -> PgflowMigrateError:
    others = _ask(dsn, _OWNERS)
    if not others:
        grants = " ".join(row["statement"] for row in _ask(dsn, _GRANTS))
        if grants:
            return PgflowMigrateError(
                f"The role lacks a right ({at}): {_text(error)}.", f"{UNCHANGED} What is missing: {grants}"
            )
        return PgflowMigrateError(
            f"The role lacks a right ({at}): {_text(error)}.",
            f"{UNCHANGED} The upgrade needs the owner of schema pgflow, CREATE on the database and the rights"
            " on PGMQ that pgflow has.",
        )
    role, owner = others[0]["role"], others[0]["owner"]
    way = (
        f"add options='-c role={owner}' to the connection string (it is a member of that role)"
        if others[0]["member"]
        else f'connect as "{owner}"'
    )
    if not others[0]["member"] and not others[0]["superuser"]:  # nobody is to be made a superuser by the way
        way += f', or grant it: grant "{owner}" to "{role}"'
    also = "".join(f', "{other["owner"]}"' for other in others[1:])
    return PgflowMigrateError(
        f'Role "{role}" may not change schema pgflow, which is owned by "{owner}"{also} ({_text(error)}).',
        f"{UNCHANGED} To run it with the owner's rights, {way}.",
    )


def _blockers(dsn: str) -> tuple[Blocker, ...]:
    rows = _ask(dsn, _BLOCKERS)
    return tuple(Blocker(**{**row, "holds": tuple(row["holds"])}) for row in rows)


def _ask(dsn: str, query: str) -> list[dict[str, Any]]:
    """Rows from a connection of its own; none when it cannot be had: this only adds to an error."""
    try:
        with database.connect(dsn, read_only=True) as connection:
            connection.execute("set local search_path = pg_catalog, pg_temp")
            return connection.cursor(row_factory=dict_row).execute(query.encode()).fetchall()
    except (psycopg.Error, PgflowMigrateError):
        return []


def _text(error: psycopg.Error) -> str:
    return _line(error.diag.message_primary or str(error)).rstrip(".")


def _line(text: str) -> str:
    return " ".join(text.split())
