"""How long audit and upgrade take on much data, and against the plain way of doing the same.

    python benchmarks/upgrade.py --tasks 1000000 --flows 500 --messages 50000

On one server, in one run: a database is populated and cloned. On one copy ``pgflow-migrate audit`` and
``pgflow-migrate upgrade`` run as processes, timed from start to end with their peak memory. On another the
upgrade runs in this process, for how long its backfill takes and how long it holds its locks. On the other
copies run, each in one transaction: the plain way (add the column, UPDATE, set not null, unique index) and
the bare rewrite (the backfill alone, as the revision does it). What counts are the ratios; the seconds are
this machine's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass

import click
import psycopg
from rich.console import Console
from rich.table import Table

from pgflow_migrate import database, resources
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server, open_server
from pgflow_migrate.upgrade.progress import Event, FileDone, FileStarted
from pgflow_migrate.upgrade.run import upgrade
from populate import populate

PLAIN = """
  alter table pgflow.step_tasks add column queue_name text;
  update pgflow.step_tasks set queue_name = lower(flow_slug);
  alter table pgflow.step_tasks alter column queue_name set not null;
  create unique index on pgflow.step_tasks (queue_name, message_id) where message_id is not null;
"""
_QUIET = "checkpoint"


@dataclass(frozen=True)
class Measured:
    """Wall-clock seconds, a process's peak memory in MB (0: no process of its own), WAL written in MB."""

    seconds: float
    memory: float = 0.0
    wal: float = 0.0


def _wal_position(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select pg_current_wal_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])


def _process(dsn: str, *arguments: str) -> Measured:
    """Run ``pgflow-migrate`` as a process of its own."""
    before = _wal_position(dsn)
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "pgflow_migrate", *arguments, "--dsn", dsn, "--format", "json"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    process.stderr.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise click.ClickException(f"{arguments[0]} ended with exit code {process.returncode}:\n{said}")
    seconds = time.monotonic() - began
    return Measured(seconds, usage.ru_maxrss / 1024, (_wal_position(dsn) - before) / 1e6)


class _Backfill:
    """Listens to an upgrade for the seconds of its backfill."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, FileStarted) and event.file == "backfill.sql":
            self._began = time.monotonic()
        elif isinstance(event, FileDone) and event.file == "backfill.sql":
            self.seconds = time.monotonic() - self._began


def _script(dsn: str, script: str) -> Measured:
    """Run SQL in one transaction."""
    before = _wal_position(dsn)
    began = time.monotonic()
    with psycopg.connect(dsn) as connection:
        connection.execute(script.encode())
    return Measured(time.monotonic() - began, 0.0, (_wal_position(dsn) - before) / 1e6)


def _copy(server: Server, name: str) -> str:
    dsn = server.create_database(name, template="populated")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(_QUIET)
    return dsn


@click.command()
@click.option("--server", default="embedded:18", show_default=True, help="Where to measure.")
@click.option("--tasks", default=1_000_000, show_default=True, help="Number of tasks.")
@click.option("--flows", default=500, show_default=True, help="Number of flows.")
@click.option("--messages", default=50_000, show_default=True, help="Number of active messages.")
def main(server: str, tasks: int, flows: int, messages: int) -> None:
    """Measure audit and upgrade against the plain way."""
    console = Console(width=110)  # one line a row, also in a log
    backfill = (resources.revision_sql("queue_identity") / "backfill.sql").read_text(encoding="utf-8")
    with open_server(server, durable=True) as running:
        Templates(running).clone("core_0_16_0", "populated")
        with database.connect(running.dsn("populated")) as connection:
            done = populate(connection, tasks=tasks, flows=flows, messages=messages)
        console.print(
            f"{running.label}: {done.tasks} tasks, {done.runs} runs, {done.flows} flows, {messages} messages"
        )

        plain = _script(_copy(running, "plain"), PLAIN)
        running.drop_database("plain")
        rewrite = _script(_copy(running, "rewrite"), backfill)
        running.drop_database("rewrite")
        tool = _copy(running, "tool")
        audit = _process(tool, "audit")
        whole = _process(tool, "upgrade")
        running.drop_database("tool")
        backfilling = _Backfill()
        result = upgrade(_copy(running, "inside"), on_progress=backfilling)
        assert result.locked_seconds is not None

    table = Table("what", "seconds", "ratio to the plain way", "client memory, MB", "WAL, MB")
    for name, one in {
        "plain way": plain,
        "bare rewrite": rewrite,
        "pgflow-migrate audit": audit,
        "pgflow-migrate upgrade": whole,
        "… its backfill": Measured(backfilling.seconds),
        "… others locked out": Measured(result.locked_seconds),
    }.items():
        ratio = f"{one.seconds / plain.seconds:.2f}"
        table.add_row(
            name,
            f"{one.seconds:.1f}",
            ratio,
            f"{one.memory:.0f}" if one.memory else "",
            f"{one.wal:.0f}" if one.wal else "",
        )
    console.print(table)


if __name__ == "__main__":
    main()
