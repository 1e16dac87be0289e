"""What the revisions of the old cores need around them, and that they lead one way."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgflow_migrate import database, resources
from pgflow_migrate.errors import SqlFileError
from pgflow_migrate.releases import catalogue
from pgflow_migrate.releases.chain import REVISIONS
from pgflow_migrate.releases.comparison import compare
from pgflow_migrate.replay.templates import upgrade_to
from pgflow_migrate.servers import Server, install_pgmq, pgmq_as_extension

Connection = psycopg.Connection[dict[str, object]]

OWNER = "core_revisions_owner"


@pytest.fixture
def bare_dsn(server: Server) -> Iterator[str]:
    """A database with nothing in it."""
    yield server.create_database("core_revisions")
    server.drop_database("core_revisions")


@pytest.fixture
def owner_dsn(server: Server, bare_dsn: str) -> Iterator[str]:
    """The same database in the hands of an owner who is no superuser, with PGMQ from plain SQL."""
    owner = sql.Identifier(OWNER)
    name = sql.Identifier(server.prefix + "core_revisions")
    with psycopg.connect(server.admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("create role {}").format(owner))
        admin.execute(sql.SQL("alter database {} owner to {}").format(name, owner))
    dsn = make_conninfo(bare_dsn, options=f"-c role={OWNER}")
    with psycopg.connect(dsn) as connection:
        install_pgmq(connection, "sql")
    yield dsn
    server.drop_database("core_revisions")
    with psycopg.connect(server.admin_dsn, autocommit=True) as admin:
        admin.execute(sql.SQL("drop role {}").format(owner))


def test_without_pg_net_pg_cron_vault_and_realtime_the_definitions_are_the_same(
    owner_dsn: str, connect: Callable[[str], Connection]
) -> None:
    upgrade_to(owner_dsn, "core_0_16_0")

    connection = connect(owner_dsn)
    absent = connection.execute("select nspname from pg_namespace where nspname in ('cron', 'net', 'vault')")
    assert absent.fetchall() == []
    actual = catalogue.read(connection)
    assert actual.sees_cron is False
    assert [str(difference) for difference in compare(catalogue.snapshot("0.16.0"), actual)] == []
    flow = connection.execute("select flow_slug, opt_base_delay from pgflow.create_flow('orders')").fetchone()
    assert flow == {"flow_slug": "orders", "opt_base_delay": 5}


def test_later_revisions_check_function_bodies_again(bare_dsn: str) -> None:
    with psycopg.connect(bare_dsn) as connection:
        install_pgmq(connection)
    engine = database.engine(bare_dsn)
    with engine.begin() as connection:
        command.upgrade(configuration(connection), "core_0_15_0")
        assert connection.exec_driver_sql("show check_function_bodies").scalar() == "on"
    engine.dispose()


def test_pgmq_is_created_where_it_is_only_available(
    bare_dsn: str, connect: Callable[[str], Connection]
) -> None:
    connection = connect(bare_dsn)
    if pgmq_as_extension(connection):
        upgrade_to(bare_dsn, "core_0_15_0")
        assert connection.execute("select extname from pg_extension where extname = 'pgmq'").fetchall() == [
            {"extname": "pgmq"}
        ]
    else:
        with pytest.raises(SqlFileError, match='extension "pgmq" is not available'):
            upgrade_to(bare_dsn, "core_0_15_0")


def test_pgmq_without_headers_is_refused_and_nothing_is_made(
    bare_dsn: str, connect: Callable[[str], Connection]
) -> None:
    connection = connect(bare_dsn)
    connection.execute(
        "create schema pgmq; create type pgmq.message_record as "
        "(msg_id bigint, read_ct integer, enqueued_at timestamptz, vt timestamptz, message jsonb)"
    )

    with pytest.raises(SqlFileError) as caught:
        upgrade_to(bare_dsn, "core_0_15_0")

    assert caught.value.cause.sqlstate == "0A000"
    assert caught.value.cause.diag.message_primary == (
        "INCOMPATIBLE PGMQ VERSION DETECTED: pgflow needs PGMQ 1.5.0 or newer"
    )
    assert connection.execute("select from pg_namespace where nspname like 'pgflow%'").fetchall() == []


def configuration(connection: sa.Connection | None = None) -> Config:
    """Alembic's configuration, on a connection."""
    config = Config(str(resources.alembic_ini()))
    config.attributes["connection"] = connection
    return config


def test_the_revisions_are_one_line() -> None:
    script = ScriptDirectory.from_config(configuration())
    line = [revision.revision for revision in script.walk_revisions()]
    assert tuple(line[::-1]) == REVISIONS
    assert len(script.get_heads()) == 1


@pytest.mark.parametrize("revision", ["core_0_15_0", "core_0_15_1", "core_0_16_0", "queue_identity"])
def test_there_is_no_way_back_but_the_backup(revision: str) -> None:
    script = ScriptDirectory.from_config(configuration())
    with pytest.raises(NotImplementedError, match="restore the backup that was taken before the upgrade"):
        script.get_revision(revision).module.downgrade()
