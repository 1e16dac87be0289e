"""All or nothing at every boundary, by the cheapest kind of fault: the session is terminated."""

from __future__ import annotations

from tests.faults.ground import Ground
from tests.faults.kinds import KINDS

BACKEND = KINDS[0]


def test_an_upgrade_that_loses_its_session_at_any_statement_changes_nothing(from_0_16: Ground) -> None:
    cells = list(from_0_16.break_all((boundary, BACKEND) for boundary in from_0_16.boundaries))
    assert [(str(cell.boundary), cell.problems) for cell in cells if cell.problems] == []
    upgraded = [str(cell.boundary) for cell in cells if cell.state == "upgraded"]
    certain = [str(cell.boundary) for cell in cells if cell.boundary.stop.when == "answered"]
    assert set(certain) <= set(upgraded)
    assert {cell.boundary for cell in cells} == set(from_0_16.boundaries)


def test_so_does_one_from_the_oldest_release_at_any_file(from_0_15: Ground) -> None:
    """Up to the files of queue_identity, at which the other test breaks every upgrade."""
    files = [boundary for boundary in from_0_15.boundaries if boundary.file and boundary.place == 1]
    older = [boundary for boundary in files if boundary.phase.startswith("core_")]
    first, last = files.index(older[0]), files.index(older[-1])
    cells = list(from_0_15.break_all((boundary, BACKEND) for boundary in files[: last + 2]))
    assert [(str(cell.boundary), cell.problems) for cell in cells if cell.problems] == []
    assert {cell.state for cell in cells} == {"unchanged"}
    assert first > 0  # the locks come first
    assert len(older) > 5
