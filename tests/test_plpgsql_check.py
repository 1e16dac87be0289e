"""plpgsql_check finds nothing in any PL/pgSQL function, at every revision that has functions of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from pgflow_migrate import prune_helper
from pgflow_migrate.releases.chain import HEAD, REVISIONS
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server, open_server

# Debian's postgresql-NN-plpgsql-check; no wheel on the package index carries the extension.
INSTALLED = sorted(Path("/usr/share/postgresql").glob("*/extension/plpgsql_check.control"))


@pytest.fixture(scope="module")
def checking_server() -> Iterator[Server]:
    """A server that has plpgsql_check."""
    if not INSTALLED:
        pytest.skip("NOT CHECKED: no PostgreSQL with plpgsql_check here; install postgresql-15-plpgsql-check")
    with open_server(f"binaries:/usr/lib/postgresql/{INSTALLED[-1].parts[-3]}/bin") as server:
        yield server


@pytest.mark.parametrize("revision", REVISIONS)
def test_plpgsql_check_finds_nothing(checking_server: Server, revision: str) -> None:
    dsn = Templates(checking_server).clone(revision, f"check_{revision}")
    with psycopg.connect(dsn) as connection:
        connection.execute("create extension plpgsql_check")
        if revision == HEAD:
            connection.execute(prune_helper.script().encode())
        rows = connection.execute(
            """
            select p.proname, c.level, c.message, c.lineno
            from pg_proc p
            join pg_language l on l.oid = p.prolang and l.lanname = 'plpgsql'
            left join pg_trigger t on t.tgfoid = p.oid and not t.tgisinternal
            cross join lateral plpgsql_check_function_tb(
              p.oid, coalesce(t.tgrelid, 0), other_warnings => true, extra_warnings => false,
              performance_warnings => false, security_warnings => true
            ) c
            where p.pronamespace = 'pgflow'::regnamespace
            order by 1, 4
            """
        ).fetchall()
        checked = connection.execute(
            "select count(*) from pg_proc p join pg_language l on l.oid = p.prolang"
            " where p.pronamespace = 'pgflow'::regnamespace and l.lanname = 'plpgsql'"
        ).fetchone()
    assert checked is not None
    assert checked[0] >= 18
    assert rows == [], "\n".join(map(str, rows))
