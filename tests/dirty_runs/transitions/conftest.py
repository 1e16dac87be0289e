"""Both ways of giving a flow its queues."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.dirty_runs.protocol import Session


@dataclass(frozen=True)
class Queues:
    """The queue of each step of ``demo``."""

    a: str
    b: str


@pytest.fixture(params=["one queue", "a queue a step"])
def queues(request: pytest.FixtureRequest, session: Session) -> Queues:
    """Define ``demo`` in one of the two modes."""
    each = request.param == "a queue a step"
    session.define(queues=each)
    return Queues("demo__a", "demo__b") if each else Queues("demo", "demo")


def break_hints(session: Session) -> None:
    """Let every event fail from now on."""
    session.execute(
        "create or replace function realtime.send("
        "  payload jsonb, event text, topic text, private boolean default true"
        ") returns void language plpgsql as"
        " $$begin raise exception 'no events today' using errcode = 'XX000'; end$$"
    )
