"""Somebody else's server: databases with a name of ours, and nothing left behind."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server, open_server

Databases = Callable[[], set[str]]


@pytest.fixture
def databases(server: Server) -> Databases:
    """The names of the databases of the server that the tests run on."""

    def read() -> set[str]:
        with psycopg.connect(server.admin_dsn) as connection:
            return {name for (name,) in connection.execute("select datname from pg_database")}

    return read


@pytest.fixture
def role(server: Server) -> Iterator[Callable[[str], str]]:
    """Make a role with the options given; returns the connection string of a session with its rights."""

    def make(options: str) -> str:
        with psycopg.connect(server.admin_dsn, autocommit=True) as connection:
            connection.execute(f"create role somebody login password 'secret' {options}".encode())
        return make_conninfo(server.admin_dsn, user="somebody", password="secret")  # noqa: S106

    yield make
    with psycopg.connect(server.admin_dsn, autocommit=True) as connection:
        connection.execute("drop role if exists somebody")


def as_url(dsn: str) -> str:
    parts = conninfo_to_dict(dsn)
    query = "&".join(
        f"{name}={quote(str(value), safe='')}" for name, value in parts.items() if name != "dbname"
    )
    return f"postgresql:///{parts['dbname']}?{query}"


@pytest.mark.parametrize("spell", [str, as_url, lambda dsn: as_url(dsn).replace("postgresql", "postgres", 1)])
def test_databases_are_made_with_a_prefix_and_dropped_at_the_end(
    server: Server, databases: Databases, spell: Callable[[str], str]
) -> None:
    before = databases()
    with open_server(spell(server.admin_dsn)) as external:
        first = external.create_database("Orders")
        with psycopg.connect(first, autocommit=True) as connection:
            connection.execute("create table kept as select 42 as answer")
        second = external.create_database("copy", template="Orders")
        with psycopg.connect(second) as connection:
            assert connection.execute("table kept").fetchall() == [(42,)]
        assert external.dsn("copy") == second
        made = databases() - before
        assert len(made) == 2
        assert all(re.fullmatch("pgflow_migrate_[0-9a-f]{8}_(Orders|copy)", name) for name in made)
        external.drop_database("copy")
        assert len(databases() - before) == 1
    assert databases() == before


def test_an_exception_leaves_no_database_behind_even_with_a_session_in_it(
    server: Server, databases: Databases
) -> None:
    before = databases()
    with contextlib.ExitStack() as sessions:

        def fail() -> None:
            with open_server(server.admin_dsn) as external:
                dsn = external.create_database("busy")
                sessions.enter_context(contextlib.closing(psycopg.connect(dsn)))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
    assert databases() == before


def test_two_users_of_one_server_do_not_meet(server: Server, databases: Databases) -> None:
    before = databases()
    with open_server(server.admin_dsn) as first, open_server(server.admin_dsn) as second:
        first.create_database("same")
        second.create_database("same")
        assert len(databases() - before) == 2
    assert databases() == before


def test_templates_work_there_and_are_dropped_too(server: Server, databases: Databases) -> None:
    before = databases()
    with open_server(server.admin_dsn) as external:
        name = Templates(external).surroundings()
        with psycopg.connect(external.create_database("own", template=name)) as connection:
            connection.execute("select pgmq.create('Orders')")
            connection.execute("select cron.schedule('job', '* * * * *', 'select 1')")
    assert databases() == before


def test_a_role_that_may_create_databases_is_enough(
    role: Callable[[str], str], databases: Databases, templates: Templates
) -> None:
    templates.surroundings()  # The roles of Supabase exist then.
    before = databases()
    with open_server(role("createdb")) as external:
        name = Templates(external).surroundings()
        with psycopg.connect(external.create_database("own", template=name)) as connection:
            assert connection.execute("select current_user").fetchall() == [("somebody",)]
            connection.execute("select pgmq.create('Orders'), cron.schedule('job', '* * * * *', 'select 1')")
            # Only a superuser could have made the stand-ins extensions.
            rows = connection.execute("select extname from pg_extension where extname <> 'pgmq'").fetchall()
            assert rows == [("plpgsql",)]
        assert len(databases() - before) == 2
    assert databases() == before


def test_a_role_that_may_not_create_databases_is_refused(role: Callable[[str], str]) -> None:
    with pytest.raises(PgflowMigrateError) as caught, open_server(role("")):
        pass
    assert str(caught.value) == (
        'Role "somebody" may not create databases. Give it the right: alter role "somebody" createdb'
    )


def test_stand_ins_need_roles_that_somebody_else_may_have_to_create() -> None:
    with open_server("embedded:18") as fresh:
        with psycopg.connect(fresh.admin_dsn, autocommit=True) as connection:
            connection.execute("create role somebody login createdb")
        with open_server(make_conninfo(fresh.admin_dsn, user="somebody")) as external:
            with pytest.raises(PgflowMigrateError) as caught:
                Templates(external).surroundings()
            assert str(caught.value) == (
                'Role "somebody" may not create the roles anon, authenticated and service_role. '
                "Create them first, or connect as a superuser."
            )
