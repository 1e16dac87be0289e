"""All or nothing at every boundary, by the cheapest kind of fault: the session is terminated.

Left to ``make faults`` are the boundaries inside the files of functions, between a function and its comment,
and those inside the files of dirty_runs.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.faults.boundaries import Boundary
from tests.faults.ground import Cell, Ground
from tests.faults.kinds import KINDS

BACKEND = KINDS[0]


def chosen(ground: Ground) -> list[Boundary]:
    return [b for b in ground.boundaries if b.place == 1 or "/functions/" not in b.file]


def broken(ground: Ground, boundaries: Sequence[Boundary]) -> list[Cell]:
    cells = list(ground.break_all((boundary, BACKEND) for boundary in boundaries))
    assert [(str(cell.boundary), cell.problems) for cell in cells if cell.problems] == []
    assert {cell.boundary for cell in cells} == set(boundaries)
    return cells


def test_an_upgrade_that_loses_its_session_at_any_statement_changes_nothing(from_0_16: Ground) -> None:
    """But those of dirty_runs, at which the next test breaks an upgrade."""
    cells = broken(from_0_16, [b for b in chosen(from_0_16) if b.phase != "dirty_runs"])
    upgraded = [str(cell.boundary) for cell in cells if cell.state == "upgraded"]
    certain = [str(cell.boundary) for cell in cells if cell.boundary.stop.when == "answered"]
    assert set(certain) <= set(upgraded)
    assert len(certain) == 1


def test_so_does_one_from_queue_identity(from_queue_identity: Ground, from_0_16: Ground) -> None:
    """The files of dirty_runs: the same statements as at the end of an upgrade from 0.16.0."""
    here, there = (
        [(boundary.file, boundary.place, boundary.statement) for boundary in ground.boundaries
         if boundary.phase == "dirty_runs" and boundary.file]
        for ground in (from_queue_identity, from_0_16)
    )  # fmt: skip
    assert here == there
    cells = broken(
        from_queue_identity,
        [
            b
            for b in chosen(from_queue_identity)
            if b.phase == "commit" or (b.phase == "dirty_runs" and b.place == 1)
        ],
    )
    upgraded = [cell.boundary.stop.when for cell in cells if cell.state == "upgraded"]
    assert "answered" in upgraded
    assert set(upgraded) <= {"sent", "answered"}


def test_so_does_one_from_the_oldest_release_at_any_file(from_0_15: Ground) -> None:
    """Up to the files of queue_identity, at which the first test breaks every upgrade."""
    files = [boundary for boundary in from_0_15.boundaries if boundary.file and boundary.place == 1]
    older = [boundary for boundary in files if boundary.phase.startswith("core_")]
    first, last = files.index(older[0]), files.index(older[-1])
    cells = broken(from_0_15, files[: last + 2])
    assert {cell.state for cell in cells} == {"unchanged"}
    assert first > 0  # the locks come first
    assert len(older) > 5
