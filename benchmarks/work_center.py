"""How long the upgrade of a Work Center store takes, and how that grows.

    python benchmarks/work_center.py --work-items 20000 --messages 20 --events 100000 --inputs 50000

A store at version 22 is made, and another with a part of its rows. On each, ``pgflow-migrate work-center
upgrade`` runs as a process of its own, backup included, timed from start to end with its processor time and
its peak memory; its progress is shown. The ratio says what a row costs in the large store, in rows of the
small one.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from pgflow_migrate.work_center import baseline

_START = 1_700_000_000_000  # milliseconds since 1970


@dataclass(frozen=True)
class Size:
    """How many rows of each kind; ``messages`` for each work item."""

    work_items: int
    messages: int
    events: int
    inputs: int

    def part(self, of: float) -> Size:
        """A store with as many messages a work item, and a part of the rows."""
        return Size(
            max(1, int(self.work_items * of)), self.messages, int(self.events * of), int(self.inputs * of)
        )


@dataclass(frozen=True)
class Measured:
    """Seconds by the clock and of the processor, peak memory and the file before and after in MB."""

    seconds: float
    processor: float
    memory: float
    before: float
    after: float


def populate(path: Path, size: Size) -> None:
    """Make a store at version 22: a work item has an action and a run, the events go round the actions."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("begin")
        baseline.create(connection)
        numbers = range(size.work_items)
        for table, rows in {
            "work_items": (
                (f"w{n}", _messages(n, size.messages), _START + n, _START + n + 1) for n in numbers
            ),
            "actions": ((f"a{n}", f"w{n}", "ready" if n % 2 else "done", 2, "hash") for n in numbers),
            "runs": (
                (f"r{n}", f"a{n}", f"w{n}", "completed", 1, 2, "boot", 3, *[None] * 10) for n in numbers
            ),
            "events": _events(size),
            "pending_action_inputs": _inputs(size),
        }.items():
            rows_ = iter(rows)
            first = next(rows_, None)
            if first is not None:
                insert = f"insert into {table} values ({', '.join('?' * len(first))})"
                connection.execute(insert, first)
                connection.executemany(insert, rows_)
        connection.execute("commit")


def _messages(item: int, count: int) -> str:
    return json.dumps([_message(item, number) for number in range(count)])


def _message(item: int, number: int) -> dict[str, Any]:
    """Some have an id, some a turn, some neither; every fourth an attachment."""
    return {
        "role": "user" if number % 2 else "assistant",
        "text": f"some words that were said, number {number} of {item}",
        "createdAt": _START + number,
        **({"id": f"m{number}"} if number % 3 else {}),
        **({"turnId": f"t{number}"} if number % 5 == 0 else {}),
        "attachments": [{"name": "a.txt", "size": number}] if number % 4 == 0 else [],
    }


def _events(size: Size) -> Iterator[tuple[Any, ...]]:
    for number in range(size.events):
        owner = number % size.work_items
        data = json.dumps({"text": f"text {number}", "inputId": f"i{number}"})
        yield number, f"w{owner}", f"a{owner}", "action.input_added", data, _START + number, 1


def _inputs(size: Size) -> Iterator[tuple[Any, ...]]:
    for number in range(size.inputs):
        owner = number % size.work_items
        consumed = _START + number if number % 2 else None
        yield number, f"a{owner}", f"w{owner}", f"r{owner}", "text", "[]", consumed, None


def measure(path: Path) -> Measured:
    """Upgrade a store by the command, in a process of its own.

    Raises:
        click.ClickException: it failed.
    """
    before = path.stat().st_size
    began = time.monotonic()
    command = [
        sys.executable,
        "-m",
        "pgflow_migrate",
        "work-center",
        "upgrade",
        str(path),
        "--now",
        str(_START),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # its progress goes to our stderr
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise click.ClickException(f"the upgrade ended with exit code {process.returncode}")
    return Measured(
        time.monotonic() - began,
        usage.ru_utime + usage.ru_stime,
        usage.ru_maxrss / 1024,
        before / 1e6,
        path.stat().st_size / 1e6,
    )


@click.command()
@click.option("--work-items", default=20_000, show_default=True, help="Number of work items.")
@click.option("--messages", default=20, show_default=True, help="Number of messages of each.")
@click.option("--events", default=100_000, show_default=True, help="Number of events with an input.")
@click.option("--inputs", default=50_000, show_default=True, help="Number of pending inputs.")
@click.option("--part", default=0.25, show_default=True, help="The small store's part of these.")
def main(work_items: int, messages: int, events: int, inputs: int, part: float) -> None:
    """Measure the upgrade of a store from 22 to 35, at two sizes."""
    whole = Size(work_items, messages, events, inputs)
    measured = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (whole.part(part), whole):
            path = Path(folder) / f"{size.work_items}.db"
            populate(path, size)
            measured.append((size, measure(path)))
    table = Table(
        "work items", "events", "inputs", "seconds", "processor", "memory, MB", "MB before", "MB after"
    )
    for size, one in measured:
        table.add_row(
            *(f"{count:,}" for count in (size.work_items, size.events, size.inputs)),
            *(f"{value:.1f}" for value in (one.seconds, one.processor)),
            *(f"{value:.0f}" for value in (one.memory, one.before, one.after)),
        )
    console = Console(width=110)  # one line a row, also in a log
    console.print(table)
    small, large = (one for _, one in measured)
    ratio = large.processor / small.processor * part
    console.print(f"A row of the large store costs {ratio:.2f} times the processor time of one of the small.")


if __name__ == "__main__":
    main()
