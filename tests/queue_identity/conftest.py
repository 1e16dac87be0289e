"""A database at queue identity, reached as a superuser or as the ordinary role that owns pgflow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from pgflow_migrate.servers import Server

Connection = psycopg.Connection[dict[str, Any]]
Snapshot = dict[str, Any]

CAPABLE = Jsonb({"queueIdentity": True})
LOCAL = (
    "select set_config('app.settings.jwt_secret',"
    " 'super-secret-jwt-token-with-at-least-32-characters-long', false)"
)
OWNER = "pgflow_owner_of_the_tests"

# What a role needs to own pgflow and to make queues, and nothing else.
HAND_OVER = f"""
  grant usage, create on schema pgmq to {OWNER};
  grant select, insert, update, delete on pgmq.meta to {OWNER};
  alter schema pgflow owner to {OWNER};
  do $$
  declare
    object record;
  begin
    for object in
      select 'table ' || c.oid::regclass as name from pg_class c
      where c.relnamespace = 'pgflow'::regnamespace and c.relkind = 'r'
      union all
      select 'type ' || t.oid::regtype from pg_type t join pg_class c on c.oid = t.typrelid
      where t.typnamespace = 'pgflow'::regnamespace and c.relkind = 'c'
      union all
      select 'function ' || p.oid::regprocedure from pg_proc p where p.pronamespace = 'pgflow'::regnamespace
    loop
      execute format('alter %s owner to {OWNER}', object.name);
    end loop;
  end $$;
  grant usage on schema realtime, vault, net to {OWNER};
  grant all on all tables in schema realtime, vault, net to {OWNER};
  grant all on all sequences in schema realtime, vault, net to {OWNER};
"""


def shape(*steps: str) -> Jsonb:
    """What a worker sends that has these steps."""
    return Jsonb(
        {
            "steps": [
                {
                    "slug": step,
                    "stepType": "single",
                    "dependencies": [],
                    "whenUnmet": "skip",
                    "whenExhausted": "fail",
                    "requiredInputPattern": {"defined": False},
                    "forbiddenInputPattern": {"defined": False},
                }
                for step in steps
            ]
        }
    )


@pytest.fixture(scope="session")
def owner(server: Server) -> Iterator[str]:
    """A role without attributes."""
    with psycopg.connect(server.admin_dsn, autocommit=True) as admin:
        admin.execute(f"create role {OWNER}".encode())
        yield OWNER
        admin.execute(f"drop role {OWNER}".encode())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Have the modules that say so (``REVISIONS``) run at each of these revisions."""
    revisions = getattr(metafunc.module, "REVISIONS", None)
    if revisions is not None and "revision" in metafunc.fixturenames:
        metafunc.parametrize("revision", revisions)


@pytest.fixture
def revision() -> str:
    """What the test's databases are at."""
    return "queue_identity"


@pytest.fixture
def superuser(
    database_at: Callable[[str], str], connect: Callable[[str], Connection], revision: str
) -> Connection:
    """An administrator's session in a database of the test's own."""
    return connect(database_at(revision))


@pytest.fixture(params=["superuser", "owner of pgflow"])
def session(
    request: pytest.FixtureRequest, owner: str, superuser: Connection, connect: Callable[[str], Connection]
) -> Connection:
    """A session of a superuser; or of the role that owns pgflow, may create in pgmq, and nothing more."""
    if request.param == "superuser":
        return superuser
    superuser.execute(HAND_OVER.encode())
    return as_role(connect, superuser, owner)


def as_role(connect: Callable[[str], Connection], known: Connection, role: str) -> Connection:
    """Another session in the same database, with the rights of ``role``."""
    info = known.info
    session = connect(
        psycopg.conninfo.make_conninfo(
            host=info.host, port=info.port, user=info.user, password=info.password, dbname=info.dbname
        )
    )
    session.execute(sql.SQL("set role {}").format(sql.Identifier(role)))
    return session


@pytest.fixture(scope="session")
def snapshot() -> Callable[[Connection], Snapshot]:
    """Every row of pgflow and PGMQ, and their relations by identity: two equal ones, and nothing was done."""

    def read(session: Connection) -> Snapshot:
        relations = session.execute(
            "select c.oid, c.relnamespace::regnamespace::text as schema, c.relname, c.relkind from pg_class c"
            " where c.relnamespace in ('pgflow'::regnamespace, 'pgmq'::regnamespace) order by 2, 3"
        ).fetchall()
        found: Snapshot = {"relations": relations}
        for relation in relations:
            if relation["relkind"] in ("r", "v") and relation["schema"] + relation["relname"][:2] != "pgmq":
                name = (relation["schema"], relation["relname"])
                found[".".join(name)] = (
                    session.cursor(row_factory=tuple_row)
                    .execute(sql.SQL("select to_jsonb(t) from {} t order by 1").format(sql.Identifier(*name)))
                    .fetchall()
                )
        return found

    return read


@pytest.fixture
def refused(
    superuser: Connection, snapshot: Callable[[Connection], Snapshot]
) -> Callable[..., psycopg.errors.Diagnostic]:
    """What a statement of a session is refused with, after making sure that it left everything as it was."""

    def run(session: Connection, statement: str, *values: object) -> psycopg.errors.Diagnostic:
        before = snapshot(superuser)
        with pytest.raises(psycopg.Error) as caught:
            session.execute(statement.encode(), values or None)
        assert snapshot(superuser) == before
        return caught.value.diag

    return run
