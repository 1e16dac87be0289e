"""Every row of the contention table: two sessions, a barrier, both orders; committed and rolled back."""

from __future__ import annotations

import pytest
from tests.dirty_runs.races.conftest import Meeting
from tests.dirty_runs.races.ends import ENDS, phrases
from tests.dirty_runs.races.scenes import OWN_FLOW, Look, Scene, build, call

from pgflow_migrate.dirty_runs.contention import CONTENTIONS, Contention

each_contention = pytest.mark.parametrize(
    "row", CONTENTIONS, ids=[f"{row.situation}: {row.first}, {row.second}" for row in CONTENTIONS]
)
NEVER_WAITS = "reconcile"


def scene_of(meeting: Meeting, row: Contention) -> Scene:
    """The situation, on a flow of its own where the calls are about the flow."""
    own = row.situation == "defined" or row.first in OWN_FLOW or row.second in OWN_FLOW
    return build(meeting.watcher, row.situation, meeting.new_flow() if own else meeting.shared)


def met(meeting: Meeting, row: Contention, scene: Scene, *, commit: bool) -> tuple[str, str]:
    """Both outcomes."""
    return meeting.meet(
        lambda one: call(one, row.first, scene),
        lambda two: call(two, row.second, scene),
        commit=commit,
        waits=row.second != NEVER_WAITS,
    )


def one_by_one(meeting: Meeting, row: Contention, *calls: str) -> tuple[list[str], Look]:
    """Outcomes and end of calls on another such scene, made one after the other by one session."""
    scene = scene_of(meeting, row)
    return [call(meeting.one, name, scene) for name in calls], scene.look(meeting.watcher)


@each_contention
def test_the_second_call_comes_after_the_first(meeting: Meeting, row: Contention) -> None:
    scene = scene_of(meeting, row)
    assert met(meeting, row, scene, commit=True) == (row.first_outcome, row.second_outcome)
    look = scene.look(meeting.watcher)
    assert [phrase for phrase in phrases(row.end) if not ENDS[phrase](look)] == [], look

    # The same as without any contention; but reconciliation that is told "busy" does nothing.
    if row.second == NEVER_WAITS:
        assert one_by_one(meeting, row, row.first) == ([row.first_outcome], look)
    else:
        assert one_by_one(meeting, row, row.first, row.second) == (
            [row.first_outcome, row.second_outcome],
            look,
        )


@each_contention
def test_the_second_call_is_alone_when_the_first_is_rolled_back(meeting: Meeting, row: Contention) -> None:
    scene = scene_of(meeting, row)
    first, second = met(meeting, row, scene, commit=False)
    assert first == row.first_outcome
    if row.second == NEVER_WAITS:
        assert second == row.second_outcome == "busy"
        second = call(meeting.two, row.second, scene)
    assert one_by_one(meeting, row, row.second) == ([second], scene.look(meeting.watcher))
