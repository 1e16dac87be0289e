"""A worker behind a pooler in transaction mode, where any statement may land on another server process."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgflow_migrate.servers import account
from pgflow_migrate.worker import Context, Flow

if TYPE_CHECKING:
    from tests.worker.conftest import Bench

PGBOUNCER = shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
PROCESSES = 2  # of the server, for the three connections of each worker

CONFIGURATION = """
[databases]
* = {server}
[pgbouncer]
pool_mode = transaction
default_pool_size = {processes}
auth_type = any
unix_socket_dir = {folder}
listen_port = 6432
stats_users = pooler
"""


@pytest.fixture
def pooled(bench: Bench) -> Iterator[Bench]:
    """The bench's database by way of a pooler; the bench itself stays connected directly."""
    if PGBOUNCER is None:
        pytest.skip("pgbouncer is not installed; Debian's package of that name has it")
    with tempfile.TemporaryDirectory(prefix="pgflow-migrate-pooler-") as name:
        folder = Path(name)
        known = conninfo_to_dict(bench.dsn)
        server = {key: known[key] for key in ("host", "port", "user", "password") if key in known}
        configuration = folder / "pgbouncer.ini"
        configuration.write_text(
            CONFIGURATION.format(server=make_conninfo("", **server), folder=folder, processes=PROCESSES),
            encoding="utf-8",
        )
        account.give(folder)
        process = subprocess.Popen(
            [PGBOUNCER, "-q", str(configuration)],
            stderr=subprocess.PIPE,
            text=True,
            **account.become(),
        )
        try:
            bench.eventually((folder / ".s.PGSQL.6432").exists, "the pooler's socket")
            bench.dsn = make_conninfo("", host=name, port=6432, user="pooler", dbname=known["dbname"])
            yield bench
        finally:
            process.terminate()
            process.communicate(timeout=30)


def test_two_workers_share_two_server_processes(pooled: Bench) -> None:
    flow = Flow("pooled", base_delay=0)
    failed: set[int] = set()

    @flow.map("each")
    def each(context: Context) -> Any:
        if context.task_index % 5 == 0 and context.task_index not in failed:
            failed.add(context.task_index)
            raise ValueError("once")
        return context.flow_input[context.task_index]

    flow.step("sum", depends_on="each")(lambda context: sum(context.input["each"]))
    pooled.compile(flow)
    runs = [pooled.start(flow, list(range(15))) for _ in range(2)]
    with (
        pooled.running(flow, concurrency=3, heartbeat_interval=0.05) as one,
        pooled.running(flow, concurrency=3, heartbeat_interval=0.05) as other,
    ):
        pooled.eventually(lambda: all(pooled.run(run)["status"] == "completed" for run in runs), "both runs")
        assert len(pooled.backends()) <= PROCESSES
        done = [one.stop(), other.stop()]
    assert [pooled.run(run)["output"] for run in runs] == [{"sum": 105}, {"sum": 105}]
    assert sum(summary.completed for summary in done) == 32
    assert sum(summary.failed for summary in done) == 3
    assert sum(summary.late + summary.unreported for summary in done) == 0
    stopped = pooled.rows("select stopped_at is not null as stopped from pgflow.workers")
    assert [row["stopped"] for row in stopped] == [True, True]


def test_the_pooler_is_one(pooled: Bench) -> None:
    with psycopg.connect(make_conninfo(pooled.dsn, dbname="pgbouncer"), autocommit=True) as connection:
        rows = connection.execute("show config", prepare=False, binary=False).fetchall()
    assert ("pool_mode", "transaction") in [row[:2] for row in rows]
