"""A transaction pooler in between: any statement outside a transaction may land on another server process."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.cli import main
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.servers import account
from pgflow_migrate.upgrade.script import upgrade_script
from pgflow_migrate.upgrade.session import Fence
from pgflow_migrate.upgrade.status import read_status
from pgflow_migrate.verify.run import verify

Session = psycopg.Connection[Any]

PGBOUNCER = Path("/usr/sbin/pgbouncer")
CONFIGURATION = """
[databases]
* = {server}
[pgbouncer]
pool_mode = transaction
default_pool_size = 2
server_round_robin = 1
auth_type = any
unix_socket_dir = {folder}
listen_port = 6543
"""


@pytest.fixture
def pooled(old: str) -> Iterator[str]:
    """The old database by way of pgbouncer, whose two connections to the server take turns."""
    if not PGBOUNCER.is_file():
        pytest.skip("NOT TESTED: there is no /usr/sbin/pgbouncer; install Debian's package pgbouncer")
    known = conninfo_to_dict(old)
    server = {key: known[key] for key in ("host", "port", "user", "password") if key in known}
    with tempfile.TemporaryDirectory(prefix="pgflow-migrate-") as name:
        folder = Path(name)
        configuration = folder / "pgbouncer.ini"
        text = CONFIGURATION.format(server=make_conninfo("", **server), folder=folder)
        configuration.write_text(text, encoding="utf-8")
        account.give(folder)
        pooler = subprocess.Popen(
            [PGBOUNCER, "-q", configuration], stderr=subprocess.PIPE, text=True, **account.become()
        )
        try:
            deadline = time.monotonic() + 30
            while not (folder / ".s.PGSQL.6543").exists():
                assert pooler.poll() is None, pooler.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.02)
            yield make_conninfo("", host=name, port=6543, user="somebody", dbname=known["dbname"])
        finally:
            pooler.terminate()
            pooler.communicate(timeout=30)


def settings_of_both(dsn: str) -> set[tuple[int, tuple[str, ...]]]:
    """What is set in each of the pooler's two sessions at the server."""
    query = (
        "select pg_backend_pid(), array(select name from pg_settings where source = 'session'"
        # What a client says when it connects, and what is of one transaction.
        " and name not in ('client_encoding', 'application_name', 'DateStyle', 'TimeZone',"
        " 'standard_conforming_strings') and name not like 'transaction_%')"
    )
    found: set[tuple[int, tuple[str, ...]]] = set()
    with psycopg.connect(dsn, autocommit=True, prepare_threshold=None) as connection:
        deadline = time.monotonic() + 30
        while len(found) < 2:
            pid, names = connection.execute(query).fetchall()[0]
            found.add((pid, tuple(names)))
            assert time.monotonic() < deadline
    return found


@pytest.mark.parametrize("way", ["command", "script"])
def test_audit_upgrade_status_and_verify_go_through_it_and_leave_no_setting_behind(
    way: str, pooled: str, work: Callable[[Session], str]
) -> None:
    # Two clients at a time, so that the pooler opens both of its connections.
    with psycopg.connect(pooled) as first, psycopg.connect(pooled) as second:
        assert (
            first.execute("select pg_backend_pid()").fetchall()
            != second.execute("select pg_backend_pid()").fetchall()
        )
    before = read_status(pooled)
    another = "the server process is not the one that the connection was opened to"
    assert (before.release, before.server.pooler) == ("0.16.0", another)
    assert run_audit(pooled).blocking == ()
    if way == "command":
        run = CliRunner().invoke(main, ["upgrade", "--dsn", pooled])
        assert run.exit_code == 0, run.output
    else:
        with psycopg.connect(pooled, autocommit=True) as connection:
            connection.execute(upgrade_script("0.16.0", Fence()).encode())
    assert read_status(pooled).release == HEAD
    assert verify(pooled).violations == ()
    assert [names for _, names in settings_of_both(pooled)] == [(), ()]
    with psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as client:
        assert work(client) == "completed"
