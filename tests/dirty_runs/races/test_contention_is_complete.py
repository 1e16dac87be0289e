"""Of the calls whose order matters, the contention table lacks only pairs that are listed with a reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations_with_replacement

import psycopg
import pytest
from tests.dirty_runs.protocol import Session
from tests.dirty_runs.races.conftest import Meeting
from tests.dirty_runs.races.omissions import OMISSIONS, Omission
from tests.dirty_runs.races.scenes import CALLS, Look, Scene, build, word

from pgflow_migrate.dirty_runs.contention import CONTENTIONS, SITUATIONS

ROWS = {(row.situation, row.first, row.second): row for row in CONTENTIONS}
PAIRS = [frozenset(pair) for pair in combinations_with_replacement(CALLS, 2)]


@dataclass(frozen=True)
class Effect:
    """What a call gets without contention, and what there is afterwards."""

    outcome: str
    look: Look


@dataclass(frozen=True)
class Orders:
    """Every call alone in a situation, and every call after every other one."""

    before: Look
    alone: dict[str, Effect]
    after: dict[tuple[str, str], Effect]

    def matters(self, one: str, other: str) -> bool:
        """Whether an outcome or the end depends on the order of two calls, or both change rows."""
        first, second = self.after[one, other], self.after[other, one]
        return (
            first.outcome != self.alone[other].outcome
            or second.outcome != self.alone[one].outcome
            or first.look != second.look
            or self.before not in (self.alone[one].look, self.alone[other].look)
        )

    def refused(self, name: str) -> bool:
        """Whether a call raises: then its transaction is over, and nobody waits for it."""
        outcome = self.alone[name].outcome
        return len(outcome) == 5 and outcome.isdigit()


Measure = Callable[[str], Orders]


@contextmanager
def undone(session: Session) -> Iterator[None]:
    """The body's changes are undone."""
    with session.connection.transaction():
        yield
        raise psycopg.Rollback


def effect(session: Session, name: str, scene: Scene) -> Effect:
    """A call in a transaction that goes on; an error undoes the call alone."""
    # Inside one transaction every call is to be like one in a transaction of its own.
    session.execute("select set_config('pgflow.reconciled', '', true)")
    try:
        with session.connection.transaction():
            outcome = word(CALLS[name](session, scene))
    except psycopg.Error as error:
        outcome = str(error.sqlstate)
    return Effect(outcome, scene.look(session))


@pytest.fixture(scope="module")
def measure(meeting: Meeting) -> Measure:
    """Make every pair of calls of a situation, once a situation."""
    known: dict[str, Orders] = {}

    def measured(situation: str) -> Orders:
        session = meeting.one
        scene = build(session, situation, meeting.new_flow())
        alone, after = {}, {}
        for first in CALLS:
            with undone(session):
                alone[first] = effect(session, first, scene)
                for second in CALLS:
                    with undone(session):
                        after[first, second] = effect(session, second, scene)
        return Orders(scene.look(session), alone, after)

    def remember(situation: str) -> Orders:
        if situation not in known:
            known[situation] = measured(situation)
        return known[situation]

    return remember


def orders(pair: frozenset[str]) -> set[tuple[str, str]]:
    """A pair in both orders; one, of a call with itself."""
    one, other = min(pair), max(pair)
    return {(one, other), (other, one)}


def left_out(situation: str, pair: frozenset[str]) -> list[Omission]:
    """The omissions that cover a pair."""
    return [omission for omission in OMISSIONS if omission.covers(situation, pair)]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_pair_whose_order_matters_is_in_the_table_in_both_orders_or_left_out_with_a_reason(
    measure: Measure, situation: str
) -> None:
    measured = measure(situation)
    assert [
        order
        for pair in PAIRS
        if measured.matters(min(pair), max(pair)) and not left_out(situation, pair)
        for order in sorted(orders(pair))
        if (situation, *order) not in ROWS
    ] == []


@pytest.mark.parametrize("situation", SITUATIONS)
def test_a_row_has_its_mirror_unless_nobody_can_wait_for_it(measure: Measure, situation: str) -> None:
    measured = measure(situation)
    assert [
        (row.first, row.second)
        for row in CONTENTIONS
        if row.situation == situation
        and (situation, row.second, row.first) not in ROWS
        and not measured.refused(row.second)
        and not left_out(situation, frozenset((row.first, row.second)))
    ] == []


def test_what_is_left_out_as_alike_is_alike(measure: Measure) -> None:
    seen = 0
    for omission in OMISSIONS:
        if omission.alike is None:
            continue
        for situation in omission.situations:
            measured = measure(situation)
            pairs = {frozenset((one, other)) for one in omission.ones for other in omission.others}
            for first, second in sorted({order for pair in pairs for order in orders(pair)}):
                row = ROWS[omission.alike, first, second]
                assert measured.alone[first].outcome == row.first_outcome, (situation, first, second)
                if second != "reconcile":  # which is told "busy", whatever it would find
                    assert measured.after[first, second].outcome == row.second_outcome, (
                        situation,
                        first,
                        second,
                    )
                seen += 1
    assert seen > 100


def test_nothing_is_left_out_that_is_in_the_table_or_does_not_matter(measure: Measure) -> None:
    for omission in OMISSIONS:
        for situation in omission.situations:
            covered = [pair for pair in PAIRS if omission.covers(situation, pair)]
            assert any(measure(situation).matters(min(pair), max(pair)) for pair in covered), (
                situation,
                omission,
            )
            if "succeed otherwise" not in omission.ones:
                assert [
                    order for pair in covered for order in orders(pair) if (situation, *order) in ROWS
                ] == [], omission


def test_a_call_gets_the_same_in_every_row_in_which_it_comes_first(measure: Measure) -> None:
    assert [
        row for row in CONTENTIONS if measure(row.situation).alone[row.first].outcome != row.first_outcome
    ] == []
