"""Every call of 0.16.0 that begins while the upgrade holds its locks, and how it ends.

The measure are the same calls made before the upgrade and after it: a call in flight has the result that it
has before, and leaves the rows that it leaves before or after.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from tests.traffic.calls import CALLS, ROUNDS, Call
from tests.traffic.flight import Ended, Flight, arrange, rows_of

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server
from pgflow_migrate.upgrade.run import upgrade
from pgflow_migrate.upgrade.session import AMONG_WORKERS

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Results:
    """What the calls ended with, and by call the rows afterwards."""

    ended: dict[str, Ended] = field(default_factory=dict)
    rows: dict[str, list[str]] = field(default_factory=dict)

    def add(self, flight: Flight) -> None:
        """Look at what a flight has left behind."""
        self.ended.update(flight.ended)
        self.look(flight.dsn, flight.calls)

    def look(self, dsn: str, calls: list[Call]) -> None:
        """Look at the rows of a database in which some calls were made."""
        rows = rows_of(dsn)
        self.rows.update({call.name: rows[call.flow] for call in calls})
        self.rows[f"others beside {calls[0].name}"] = rows[""]


@dataclass(frozen=True)
class Measure:
    """The calls without an upgrade at the same time.

    Attributes:
        plain: made, and no upgrade at all.
        before: made, then the upgrade.
        after: the upgrade, then made.
        without: the upgrade, and no calls.
    """

    plain: Results = field(default_factory=Results)
    before: Results = field(default_factory=Results)
    after: Results = field(default_factory=Results)
    without: Results = field(default_factory=Results)


Database = Callable[[list[Call]], str]


@pytest.fixture(scope="module")
def database(server: Server, templates: Templates) -> Iterator[Database]:
    """Databases that are arranged for some calls, as copies of one another."""
    arranged: dict[str, str] = {}
    made: list[str] = []

    def make(calls: list[Call]) -> str:
        key = calls[0].name
        if key not in arranged:
            arranged[key] = f"traffic_{next(_numbers)}"
            made.append(arranged[key])
            arrange(templates.clone("core_0_16_0", arranged[key]), calls)
        name = f"traffic_{next(_numbers)}"
        made.append(name)
        return server.create_database(name, template=arranged[key])

    yield make
    for name in made:
        server.drop_database(name)


@pytest.fixture(scope="module")
def measure(database: Database) -> Measure:
    """The calls, each round in databases of its own."""
    found = Measure()
    for calls in ROUNDS:
        flight = Flight(database(calls), [call for call in calls if not call.refused])
        flight.alone()
        found.plain.add(flight)
        upgrade(flight.dsn, fence=AMONG_WORKERS)
        found.before.add(flight)
        # What would stand in the upgrade's way.
        refused = [call for call in calls if call.refused]
        if refused:
            flight = Flight(database(calls), refused)
            flight.alone()
            found.plain.add(flight)

        flight = Flight(database(calls), calls)
        upgrade(flight.dsn, fence=AMONG_WORKERS)
        found.without.look(flight.dsn, calls)
        flight.alone(upgraded=True)
        found.after.add(flight)
    return found


def fly(database: Database, *, warm: bool, commit: bool) -> Results:
    """All calls beside an upgrade."""
    results = Results()
    for calls in ROUNDS:
        flight = Flight(database(calls), calls, warm=warm)
        flight.under_upgrade(commit=commit)
        results.add(flight)
    return results


@pytest.fixture(scope="module")
def in_new_sessions(database: Database) -> Results:
    """The upgrade commits; the sessions have done nothing before."""
    return fly(database, warm=False, commit=True)


@pytest.fixture(scope="module")
def in_warm_sessions(database: Database) -> Results:
    """The upgrade commits; the sessions have made their calls before, so that their plans are cached."""
    return fly(database, warm=True, commit=True)


@pytest.fixture(scope="module")
def rolled_back(database: Database) -> Results:
    """The upgrade rolls back in its last step; the sessions have made their calls before."""
    return fly(database, warm=True, commit=False)


each_call = pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)


@each_call
def test_a_call_of_a_session_with_cached_plans_that_waits_for_a_commit(
    measure: Measure, in_warm_sessions: Results, call: Call
) -> None:
    ended, rows = in_warm_sessions.ended[call.name], in_warm_sessions.rows[call.name]
    if call.error is None:
        assert ended == measure.plain.ended[call.name]
        assert rows in (measure.before.rows.get(call.name), measure.after.rows[call.name])
    else:
        assert ended == Ended(call.waits, error=call.error)
        assert rows == measure.without.rows[call.name]


@each_call
def test_a_call_of_a_new_session_that_waits_for_a_commit(
    measure: Measure, in_new_sessions: Results, call: Call
) -> None:
    ended, rows = in_new_sessions.ended[call.name], in_new_sessions.rows[call.name]
    if call.error_when_new is None:
        assert ended in (measure.plain.ended[call.name], measure.after.ended[call.name])
        assert rows in (measure.before.rows.get(call.name), measure.after.rows[call.name])
    else:
        assert ended == Ended(call.waits, error=call.error_when_new)
        assert rows == measure.without.rows[call.name]


@each_call
def test_a_call_that_waits_while_the_upgrade_rolls_back_never_hears_of_it(
    measure: Measure, rolled_back: Results, call: Call
) -> None:
    assert rolled_back.ended[call.name] == measure.plain.ended[call.name]
    assert rolled_back.rows[call.name] == measure.plain.rows[call.name]


def test_rows_that_belong_to_no_flow_are_as_without_an_upgrade(
    measure: Measure, in_warm_sessions: Results, in_new_sessions: Results, rolled_back: Results
) -> None:
    others = {f"others beside {calls[0].name}" for calls in ROUNDS}
    assert others <= rolled_back.rows.keys()
    for name in others:
        assert rolled_back.rows[name] == measure.plain.rows[name]
        assert in_warm_sessions.rows[name] == measure.before.rows[name]
        assert in_new_sessions.rows[name] == measure.before.rows[name]
