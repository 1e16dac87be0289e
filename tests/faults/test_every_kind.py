"""All or nothing by every kind of fault, after the last statement of every phase and around the COMMIT."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from tests.faults.boundaries import PHASES, Boundary
from tests.faults.ground import IN_DOUBT, Cell, Ground
from tests.faults.kinds import KINDS

BY_NAME = {kind.name: kind for kind in KINDS}
# To whom no COMMIT was sent it makes no difference when the server is back.
ORDINARY = [kind for kind in KINDS if kind.name != "server away"]


def broken(ground: Ground, boundary: Boundary, kinds: list[str]) -> dict[str, Cell]:
    cells = list(ground.break_all((boundary, BY_NAME[name]) for name in kinds))
    assert [(str(cell.boundary), cell.kind, cell.problems) for cell in cells if cell.problems] == []
    return {cell.kind: cell for cell in cells}


@pytest.mark.parametrize("phase", PHASES[:-1])
def test_a_fault_changes_nothing(from_0_16: Ground, phase: str) -> None:
    boundary = [boundary for boundary in from_0_16.boundaries if boundary.phase == phase][-1]
    cells = broken(from_0_16, boundary, [kind.name for kind in ORDINARY])
    assert {kind: cell.state for kind, cell in cells.items()} == dict.fromkeys(cells, "unchanged")


def at_commit(ground: Ground, when: str) -> Boundary:
    (boundary,) = [b for b in ground.boundaries if (b.statement, b.stop.when) == ("COMMIT", when)]
    return boundary


def test_a_commit_that_does_not_arrive_changes_nothing_unless_the_client_alone_wanted_to_stop(
    from_0_16: Ground,
) -> None:
    cells = broken(from_0_16, at_commit(from_0_16, "before"), list(BY_NAME))
    assert {kind for kind, cell in cells.items() if cell.state == "upgraded"} <= {"sigterm", "disk"}


def test_a_fault_during_the_commit_leaves_a_whole_and_the_truth(from_0_16: Ground) -> None:
    cells = broken(from_0_16, at_commit(from_0_16, "sent"), list(BY_NAME))
    assert {cell.state for cell in cells.values()} <= {"unchanged", "upgraded"}


def test_a_commit_whose_answer_is_lost_has_taken_effect(from_0_16: Ground) -> None:
    cells = broken(from_0_16, at_commit(from_0_16, "answered"), list(BY_NAME))
    assert {cell.state for cell in cells.values()} == {"upgraded"}
    in_doubt = {kind for kind, cell in cells.items() if IN_DOUBT in cell.said.text}
    assert in_doubt == {"server away"}
    assert {kind: cell.said.exit_code for kind, cell in cells.items() if kind not in in_doubt} == {
        kind: -9 if kind == "sigkill" else 0 for kind in cells if kind not in in_doubt
    }


def files(ground: Ground, dsn: str) -> set[Path]:
    """The files of a database that hold something and that no relation owns, after a checkpoint."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("checkpoint")
        (folder,) = connection.execute(
            "select 'base/' || oid from pg_database where datname = current_database()"
        ).fetchall()[0]
        owned = {
            name.rpartition("/")[2]
            for (name,) in connection.execute(
                "select pg_relation_filepath(oid) from pg_class where pg_relation_filepath(oid) is not null"
            )
        }
    there = (ground.server.cluster.data / folder).iterdir()
    return {
        path
        for path in there
        if path.name[0].isdecimal() and path.stat().st_size > 0 and path.name.split("_")[0] not in owned
    }


@pytest.mark.parametrize(("kind", "left"), [("backend", False), ("server", True)])
def test_only_a_crash_of_the_server_leaves_files_on_disk(from_0_16: Ground, kind: str, left: bool) -> None:
    """PostgreSQL does not look for the files of what a crash has cut off; docs/faults.md says so."""
    boundary = [boundary for boundary in from_0_16.boundaries if boundary.phase == "index"][-1]
    with from_0_16.database() as dsn:
        before = files(from_0_16, dsn)
        cell = from_0_16.break_at(dsn, boundary, BY_NAME[kind])
        assert (cell.state, cell.problems) == ("unchanged", ())
        assert bool(files(from_0_16, dsn) - before) == left
