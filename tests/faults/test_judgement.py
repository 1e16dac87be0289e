"""The judge is not blind: what a fault must not leave, and what a client must not say, is red."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.faults.boundaries import Boundary
from tests.faults.client import Said
from tests.faults.ground import Ground, judge_words
from tests.faults.kinds import KINDS, Kind, Scene
from tests.faults.line import Stop, Verdict, When

BACKEND = KINDS[0]
AWAY = KINDS[2]
TERMINATED = KINDS[3]
KILLED = KINDS[4]


def test_a_change_that_stays_is_half_an_upgrade(from_0_16: Ground) -> None:
    with from_0_16.database() as dsn:

        def vandalise(scene: Scene) -> Verdict:
            with psycopg.connect(dsn) as connection:
                connection.execute(
                    "update pgmq.meta set is_unlogged = is_unlogged where queue_name = 'newsletter'"
                )
            return Verdict.RESET

        cell = from_0_16.break_at(dsn, from_0_16.boundaries[10], Kind("vandal", "", vandalise))
    assert cell.state == ""
    # The values are the same; it is the row version that gives it away.
    wrong = "half an upgrade: table pgmq.meta lost 1 rows, table pgmq.meta gained 1 rows"
    assert wrong in cell.problems


def test_a_fault_that_cannot_be_made_is_red(from_0_16: Ground) -> None:
    def stumble(scene: Scene) -> Verdict:
        raise PermissionError("not permitted")

    with from_0_16.database() as dsn:
        cell = from_0_16.break_at(dsn, from_0_16.boundaries[10], Kind("clumsy", "", stumble))
    assert cell.problems == ("the fault could not be made: PermissionError('not permitted')",)


def test_a_stop_that_is_never_reached_is_red(from_0_16: Ground) -> None:
    nowhere = Boundary(Stop(10_000), "commit", "", 1, "select 1")
    with from_0_16.database() as dsn:
        cell = from_0_16.break_at(dsn, nowhere, BACKEND)
    assert cell.state == "upgraded"
    assert "the line never came to its stop" in cell.problems
    assert "the database is upgraded" in cell.problems


def said(exit_code: int, status: str, message: str = "", stderr: str = "") -> Said:
    document: dict[str, Any] = {"status": status, "error": {"message": message}}
    return Said(exit_code, document if status else None, stderr)


UNCHANGED = said(1, "failed", "It failed. The database is unchanged.")
UPGRADED = said(0, "upgraded")
IN_DOUBT = said(1, "failed", "Lost, and whether it took effect could not be found out.")


@pytest.mark.parametrize(
    ("when", "statement", "kind", "state", "told", "red"),
    [
        ("before", "select 1", BACKEND, "unchanged", UNCHANGED, []),
        ("before", "COMMIT", TERMINATED, "upgraded", UPGRADED, []),
        ("sent", "COMMIT", BACKEND, "unchanged", UNCHANGED, []),
        ("sent", "COMMIT", BACKEND, "unchanged", IN_DOUBT, []),
        ("answered", "COMMIT", AWAY, "upgraded", IN_DOUBT, []),
        ("answered", "COMMIT", KILLED, "upgraded", said(-9, ""), []),
        ("before", "select 1", BACKEND, "upgraded", UPGRADED, ["the database is upgraded"]),
        ("before", "COMMIT", BACKEND, "upgraded", UPGRADED, ["the database is upgraded"]),
        ("answered", "COMMIT", BACKEND, "unchanged", UNCHANGED, ["the database is unchanged"]),
        (
            "answered",
            "COMMIT",
            BACKEND,
            "upgraded",
            UNCHANGED,
            [
                "the database is upgraded, but the client ended with 1: failed It failed. The database is"
                " unchanged."
            ],
        ),
        (
            "sent",
            "COMMIT",
            BACKEND,
            "unchanged",
            UPGRADED,
            ["the database is unchanged, but the client ended with 0: upgraded "],
        ),
        (
            "before",
            "select 1",
            BACKEND,
            "unchanged",
            said(1, "failed", "It failed."),
            ["the client does not say that the database is unchanged: It failed."],
        ),
        (
            "before",
            "select 1",
            AWAY,
            "unchanged",
            IN_DOUBT,
            ["the client is in doubt although no COMMIT was sent"],
        ),
        (
            "before",
            "select 1",
            BACKEND,
            "unchanged",
            said(1, "failed", "The database is unchanged.", "Traceback (most recent call last):"),
            ["the client shows a traceback"],
        ),
    ],
)
def test_only_the_truth_is_accepted(
    when: When, statement: str, kind: Kind, state: str, told: Said, red: list[str]
) -> None:
    boundary = Boundary(Stop(1, when), "commit", "", 1, statement)
    assert list(judge_words(boundary, kind, state, told)) == red
