"""Break an upgrade at every statement boundary, in every way, and show what came of it.

    python -m tests.faults.matrix --jobs 2 --format json

Each row has a populated database of its own. For each kind the command upgrades it and is broken there; what
is left is compared with what was there before, to the last row version and file. After the last kind (with
--each: after every kind, then on a fresh database) the next upgrade runs to its end and has to leave what an
undisturbed one leaves. Exit code 3 when a cell is red.
"""

from __future__ import annotations

import contextlib
import json
import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import click
from tests.faults.boundaries import Boundary
from tests.faults.ground import Cell, Ground, grounds
from tests.faults.kinds import KINDS, Kind

STARTS = ("core_0_16_0", "core_0_15_0", "queue_identity")
"""Where upgrades start: all but the first for the files' boundaries and the first kind only."""


@dataclass(frozen=True)
class Result:
    """A matrix.

    Attributes:
        cells: by start, in the order of the boundaries.
        boundaries: how many there are, by start.
        seconds: how long it took.
    """

    cells: dict[str, tuple[Cell, ...]]
    boundaries: dict[str, int]
    seconds: float

    @property
    def red(self) -> tuple[Cell, ...]:
        """The cells with problems."""
        return tuple(cell for cells in self.cells.values() for cell in cells if cell.problems)


Row = tuple[str, Boundary, tuple[Kind, ...]]
"""Where the upgrade starts, where it is broken, and how."""


def rows(
    start: str, boundaries: Sequence[Boundary], kinds: Sequence[Kind], phases: Collection[str]
) -> list[Row]:
    """The rows of the matrix for an upgrade that starts at ``start``; of some phases, if any are given."""
    boundaries = [boundary for boundary in boundaries if not phases or boundary.phase in phases]
    if start == STARTS[0]:
        return [(start, boundary, tuple(kinds)) for boundary in boundaries]
    return [
        (start, boundary, tuple(kinds[:1]))
        for boundary in boundaries
        if boundary.file and boundary.place == 1
    ]


def run(
    kinds: Sequence[Kind],
    jobs: int,
    tell: Callable[[Cell], None],
    *,
    phases: Collection[str] = (),
    each: bool = False,
) -> Result:
    """Fill the matrix, with ``jobs`` servers at a time.

    Args:
        kinds: the columns.
        jobs: how many servers.
        tell: called with each cell, in no particular order.
        phases: only these; all when empty.
        each: run the next upgrade to its end after every fault.

    Raises:
        Exception: the first that a lane has met: the matrix itself could not be run.
    """
    started = time.monotonic()
    tasks: queue.SimpleQueue[Row] = queue.SimpleQueue()
    found: dict[str, list[Cell]] = {start: [] for start in STARTS}
    boundaries: dict[str, Sequence[Boundary]] = {}
    errors: list[BaseException] = []
    lock = threading.Lock()

    def lane() -> None:
        try:
            with contextlib.ExitStack() as stack:
                with lock:  # Alembic is for one thread at a time
                    there = stack.enter_context(grounds(*STARTS))
                    by_start = dict(zip(STARTS, there, strict=True))
                    _fill(tasks, boundaries, by_start, kinds, phases)
                while not errors:
                    start, boundary, row = tasks.get_nowait()
                    for cell in by_start[start].break_all([(boundary, kind) for kind in row], each=each):
                        with lock:
                            found[start].append(cell)
                            tell(cell)
        except queue.Empty:
            return
        except BaseException as error:  # raised again below
            errors.append(error)

    lanes = [threading.Thread(target=lane) for _ in range(jobs)]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()
    if errors:
        raise errors[0]
    names = [kind.name for kind in kinds]
    order = {boundary: place for start in STARTS for place, boundary in enumerate(boundaries[start])}
    return Result(
        {
            start: tuple(sorted(cells, key=lambda cell: (order[cell.boundary], names.index(cell.kind))))
            for start, cells in found.items()
        },
        {start: len(boundaries[start]) for start in STARTS},
        time.monotonic() - started,
    )


def _fill(
    tasks: queue.SimpleQueue[Row],
    boundaries: dict[str, Sequence[Boundary]],
    by_start: dict[str, Ground],
    kinds: Sequence[Kind],
    phases: Collection[str],
) -> None:
    """The first lane says what there is to do; the others have to have found the same."""
    for start, ground in by_start.items():
        if start not in boundaries:
            boundaries[start] = ground.boundaries
            for row in rows(start, ground.boundaries, kinds, phases):
                tasks.put(row)
        elif boundaries[start] != ground.boundaries:
            raise RuntimeError(f"two upgrades from {start} do not have the same statements")


def table(result: Result, kinds: Sequence[Kind]) -> str:
    """Boundary by kind: what state the database was left in."""
    lines = [f"{kind.name:12}{kind.what}" for kind in kinds]
    for start, cells in result.cells.items():
        columns = [kind.name for kind in kinds if any(cell.kind == kind.name for cell in cells)]
        lines += ["", f"From {start}", "".join(f"{column:12}" for column in columns) + "boundary"]
        by_boundary: dict[Boundary, dict[str, Cell]] = {}
        for cell in cells:
            by_boundary.setdefault(cell.boundary, {})[cell.kind] = cell
        for boundary, row in by_boundary.items():
            states = ["RED" if row[column].problems else row[column].state for column in columns]
            lines.append("".join(f"{state:12}" for state in states) + str(boundary))
    lines += ["", *(f"RED {cell.boundary} / {cell.kind}: {'; '.join(cell.problems)}" for cell in result.red)]
    lines.append(summary(result))
    return "\n".join(lines)


def summary(result: Result) -> str:
    """The figures, in a line."""
    counts = ", ".join(
        f"{len(cells)} cells of {result.boundaries[start]} boundaries from {start}"
        for start, cells in result.cells.items()
    )
    return f"{counts}: {len(result.red)} red, {result.seconds:.0f} s"


def document(result: Result) -> dict[str, Any]:
    """The same for programs."""
    return {
        "seconds": round(result.seconds, 1),
        "red": len(result.red),
        "boundaries": result.boundaries,
        "cells": [
            {
                "start": start,
                "number": cell.boundary.stop.number,
                "when": cell.boundary.stop.when,
                "phase": cell.boundary.phase,
                "file": cell.boundary.file,
                "place": cell.boundary.place,
                "statement": cell.boundary.statement,
                "kind": cell.kind,
                "state": cell.state,
                "exit_code": cell.said.exit_code,
                "said": cell.said.text or cell.said.status,
                "problems": cell.problems,
                "seconds": round(cell.seconds, 2),
            }
            for start, cells in result.cells.items()
            for cell in cells
        ],
    }


@click.command()
@click.option("--format", "format_", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    "--jobs", type=click.IntRange(1), default=2, show_default=True, help="How many servers at a time."
)
@click.option("--kind", "names", multiple=True, type=click.Choice([kind.name for kind in KINDS]))
@click.option("--phase", "phases", multiple=True, help="Only boundaries of this phase; may be repeated.")
@click.option("--each", is_flag=True, help="Run the next upgrade to its end after every fault.")
def main(format_: str, jobs: int, names: tuple[str, ...], phases: tuple[str, ...], each: bool) -> None:
    """Break an upgrade at every statement boundary, in every way."""
    kinds = [kind for kind in KINDS if not names or kind.name in names]
    done = 0

    def tell(cell: Cell) -> None:
        nonlocal done
        done += 1
        if cell.problems or done % 50 == 0:
            click.echo(
                f"{done}: {cell.boundary} / {cell.kind}: {'; '.join(cell.problems) or cell.state}", err=True
            )

    result = run(kinds, jobs, tell, phases=phases, each=each)
    click.echo(json.dumps(document(result), indent=2) if format_ == "json" else table(result, kinds))
    sys.exit(3 if result.red else 0)


if __name__ == "__main__":
    main()
