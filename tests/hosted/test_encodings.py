"""Databases and clients of other encodings than UTF8."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.replay.templates import upgrade_to
from pgflow_migrate.servers import Server, install_pgmq, install_surroundings
from pgflow_migrate.upgrade.status import read_status
from pgflow_migrate.verify.run import verify

Session = psycopg.Connection[Any]


@pytest.fixture
def encoded(server: Server) -> Iterator[Callable[[str], str]]:
    """Make a database of an encoding at 0.16.0."""
    made: list[str] = []

    def make(encoding: str) -> str:
        name = f"{server.prefix}in_{encoding.lower()}"
        with psycopg.connect(server.admin_dsn, autocommit=True) as admin:
            admin.execute(
                sql.SQL(
                    "create database {} template template0 encoding {} lc_collate 'C' lc_ctype 'C'"
                ).format(sql.Identifier(name), sql.Literal(encoding))
            )
        made.append(f"in_{encoding.lower()}")
        dsn = server.dsn(made[-1])
        with psycopg.connect(dsn) as connection:
            install_pgmq(connection)
            install_surroundings(connection)
        upgrade_to(dsn, "core_0_16_0")
        return dsn

    yield make
    for name in made:
        server.drop_database(name)


@pytest.mark.parametrize(("way", "encoding"), [("command", "SQL_ASCII"), ("script", "LATIN1")])
def test_the_upgrade_and_what_comes_after(
    way: str, encoding: str, encoded: Callable[[str], str], upgrade_by: Callable[[str, str], None]
) -> None:
    dsn = encoded(encoding)
    with psycopg.connect(dsn, autocommit=True, client_encoding="LATIN1") as connection:
        connection.execute(f"alter database {connection.info.dbname} set client_encoding = 'LATIN1'".encode())
        connection.execute(b"select pgflow.create_flow('orders'); select pgflow.add_step('orders', 'pack');")
        if encoding == "LATIN1":
            # jsonb holds text of the database's encoding; SQL_ASCII would refuse or keep bytes.
            connection.execute("select pgflow.start_flow('orders', %s)", ('{"name": "Müller"}',))
    upgrade_by(way, dsn)
    assert verify(dsn).violations == ()
    assert read_status(dsn).release == HEAD
    with psycopg.connect(dsn, autocommit=True) as connection:
        assert connection.execute("show server_encoding").fetchall() == [(encoding,)]
        if encoding == "LATIN1":
            assert connection.execute("select input ->> 'name' from pgflow.runs").fetchall() == [("Müller",)]
        queue = connection.execute("select queue_name::bytea from pgflow.steps").fetchall()
        assert [bytes(name) for (name,) in queue] == [b"orders"]
