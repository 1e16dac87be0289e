"""Each kind of server really started, with PGMQ and the stand-ins in both ways."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pgmq.install import get_embedded_sql_version

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import (
    LocalServer,
    Server,
    install_pgmq,
    install_surroundings,
    open_server,
    pgmq_as_extension,
)

DEBIAN_15 = Path("/usr/lib/postgresql/15/bin")

# What migrations written for Supabase say: the clauses are those of its documentation and its dumps.
SUPABASE_LINES = """
create extension if not exists "pgmq";
create extension if not exists "pgmq" with schema "pgmq";
create extension if not exists pgmq version '1.5.1';
create extension if not exists pg_cron;
create extension if not exists "pg_cron" with schema "pg_catalog";
create extension if not exists "pg_net" with schema "extensions";
create extension if not exists pg_net;
create extension if not exists "supabase_vault" with schema "vault";
"""


@pytest.fixture(
    scope="module",
    params=["embedded:16", "embedded:17", "embedded:18", f"binaries:{DEBIAN_15}"],
)
def started(request: pytest.FixtureRequest) -> Iterator[Server]:
    if request.param.startswith("binaries:") and not DEBIAN_15.is_dir():
        pytest.skip(f"Debian's PostgreSQL 15 is not installed in {DEBIAN_15}")
    with open_server(request.param) as server:
        yield server


@pytest.fixture
def database(started: Server) -> Iterator[str]:
    """An empty database; its connection string."""
    yield started.create_database("own")
    started.drop_database("own")


def connected(dsn: str) -> psycopg.Connection[Any]:
    return psycopg.connect(dsn, autocommit=True)


def extensions(connection: psycopg.Connection[Any]) -> dict[str, str]:
    rows = connection.execute(
        "select extname, nspname from pg_extension join pg_namespace n on n.oid = extnamespace"
    )
    return dict(rows.fetchall())


def test_the_label_tells_the_version_that_answers(started: Server) -> None:
    with connected(started.admin_dsn) as connection:
        version = connection.info.server_version // 10000
    word = "binaries" if version == 15 else "embedded"
    assert started.label == f"{word}-{version}"


def test_the_settings_are_those_of_a_throwaway_server(started: Server) -> None:
    expected = {
        "fsync": "off",
        "synchronous_commit": "off",
        "full_page_writes": "off",
        "jit": "off",
        "autovacuum": "on",
        "max_connections": "200",
        "max_locks_per_transaction": "256",
        "listen_addresses": "",
        "server_encoding": "UTF8",
        "TimeZone": "UTC",
        "lc_messages": "C",
    }
    with connected(started.admin_dsn) as connection:
        rows = connection.execute(
            "select name, setting from pg_settings where name = any(%s)", [list(expected)]
        )
        assert dict(rows.fetchall()) == expected


def test_the_programs_and_the_log_are_at_hand(started: Server) -> None:
    assert started.bin_dir is not None
    assert (started.bin_dir / "pg_dump").is_file()
    assert started.log is not None
    assert "database system is ready to accept connections" in started.log.read_text(encoding="utf-8")


def test_pgmq_is_a_real_extension(database: str) -> None:
    with connected(database) as connection:
        assert pgmq_as_extension(connection)
        install_pgmq(connection)
        row = connection.execute("select extversion from pg_extension where extname = 'pgmq'").fetchone()
        assert row == (get_embedded_sql_version(),)
        connection.execute("select pgmq.create('Orders')")
        assert connection.execute("select * from pgmq.send('Orders', '{}')").fetchall() == [(1,)]
        # pgmq.meta is the extension's own: dropping it alone is refused.
        with pytest.raises(psycopg.errors.DependentObjectsStillExist):
            connection.execute("drop table pgmq.meta")


def test_pgmq_as_sql_leaves_no_extension(database: str) -> None:
    with connected(database) as connection:
        install_pgmq(connection, "sql")
        assert extensions(connection) == {"plpgsql": "pg_catalog"}
        connection.execute("select pgmq.create('Orders')")
        assert connection.execute("select * from pgmq.send('Orders', '{}')").fetchall() == [(1,)]


def test_sql_written_for_supabase_runs_unchanged(database: str) -> None:
    with connected(database) as connection:
        install_pgmq(connection)
        install_surroundings(connection)
        before = extensions(connection)
        connection.execute(SUPABASE_LINES.encode())
        assert (
            extensions(connection)
            == before
            == {
                "plpgsql": "pg_catalog",
                "pgmq": "pgmq",
                "pg_cron": "pg_catalog",
                "pg_net": "extensions",
                "supabase_vault": "vault",
            }
        )


def test_an_empty_database_takes_the_extensions_of_supabase(database: str) -> None:
    with connected(database) as connection:
        for name, script in (
            ("pgmq", 'create extension "pgmq"'),
            ("pgmq", 'create schema "pgmq"; create extension "pgmq" with schema "pgmq"'),
            ("pg_cron", "create extension pg_cron"),
            ("pg_cron", "create extension pg_cron with schema pg_catalog"),
            ("pg_net", "create extension pg_net"),
            ("pg_net", "create schema extensions; create extension pg_net with schema extensions"),
            (
                "supabase_vault",
                "create schema vault; create extension supabase_vault with schema vault cascade",
            ),
        ):
            with connection.transaction(force_rollback=True):
                connection.execute(script.encode())
                assert set(extensions(connection)) == {"plpgsql", name}


def test_templates_give_pgmq_in_either_way(started: Server) -> None:
    for how, expected in (("extension", 1), ("sql", 0)):
        templates = Templates(started, pgmq=how)  # type: ignore[arg-type]
        dsn = started.create_database(f"with_{how}", template=templates.surroundings())
        with connected(dsn) as connection:
            row = connection.execute("select count(*) from pg_extension where extname = 'pgmq'").fetchone()
            assert row == (expected,)
            connection.execute("select pgmq.create('Orders')")
        started.drop_database(f"with_{how}")


def test_a_clone_of_a_clone_has_its_data(started: Server) -> None:
    first = started.create_database("first")
    with connected(first) as connection:
        connection.execute("create table kept as select 42 as answer")
    second = started.create_database("second", template="first")
    with connected(second) as connection:
        assert connection.execute("table kept").fetchall() == [(42,)]
    started.drop_database("second")
    started.drop_database("first")


def test_dropping_a_database_ends_the_sessions_in_it(started: Server) -> None:
    dsn = started.create_database("busy")
    with connected(dsn) as connection:
        started.drop_database("busy")
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    started.drop_database("busy")


def test_a_crash_ends_the_sessions_and_the_server_comes_back(started: Server) -> None:
    assert isinstance(started, LocalServer)
    dsn = started.create_database("crashed")
    with connected(dsn) as connection:
        connection.execute("create table kept as select 42 as answer")
        connection.execute("checkpoint")
        started.crash()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("select 1")
    with connected(dsn) as connection:
        assert connection.execute("table kept").fetchall() == [(42,)]
    started.drop_database("crashed")
