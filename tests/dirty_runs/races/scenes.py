"""The situations and calls of the contention table, on real rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.rows import tuple_row
from tests.dirty_runs.protocol import Session
from tests.dirty_runs.state import State, anonymous, states

OWN_FLOW = ("delete", "add_step", "reroute")
"""Calls for which a flow may not be shared with runs that do not belong to the scene."""


@dataclass(frozen=True)
class Look:
    """What there is of a scene.

    Attributes:
        run: None when there is none.
        flow: whether its flow is there.
        routes: queues of the flow's steps.
        sent: messages of the run that are in the queue or its archive, whoever they belong to.
    """

    run: State | None
    flow: bool
    routes: dict[str, str] | None
    sent: tuple[int, int]


@dataclass(frozen=True)
class Scene:
    """A run (or one to come), and what the calls are about.

    Attributes:
        flow: its flow.
        run: its id, also where there is none yet.
        wanted: the step that is claimed.
        held: the step that is recovered.
        token: the claim that is settled and recovered; unknown where there is none.
    """

    flow: str
    run: UUID
    wanted: str
    held: str
    token: UUID

    def look(self, session: Session) -> Look:
        """What there is of the run and its flow."""
        found = session.row(
            """
            select to_regclass('pgmq.q_' || named.flow) is not null as queue,
              exists (select from pgflow.flows where flow_slug = named.flow) as flow,
              (select jsonb_object_agg(step_slug, replace(queue_name, named.flow, 'own'))
                 from pgflow.steps where flow_slug = named.flow) as routes
            from (select %s::text) as named (flow)
            """,
            self.flow,
        )
        queues = (self.flow, self.flow) if found["queue"] else None
        state = states(session, queues, [self.run]).get(self.run)
        sent = (0, 0)
        if found["queue"]:
            counts = " ".join(
                f"(select count(*) from pgmq.{table}_{self.flow} where message ->> 'run_id' = %(run)s){comma}"
                for table, comma in (("q", ","), ("a", ""))
            )
            sent = (
                session.connection.cursor(row_factory=tuple_row)
                .execute(f"select {counts}".encode(), {"run": str(self.run)})
                .fetchall()[0]
            )
        return Look(anonymous(state), found["flow"], found["routes"], sent)


# -- situations ------------------------------------------------------------------------------------


def _b_held(session: Session, run: UUID) -> UUID:
    session.complete(session.claimed(run, "a"), {"a": 1})
    session.settle_down(run)
    return session.claimed(run, "b")


def _queued(session: Session, run: UUID) -> tuple[str, str, UUID]:
    return "a", "a", uuid4()


def _held(session: Session, run: UUID) -> tuple[str, str, UUID]:
    return "a", "a", session.claimed(run, "a")


def _expired(session: Session, run: UUID) -> tuple[str, str, UUID]:
    token = session.claimed(run, "a")
    session.expire(token)
    return "a", "a", token


def _last(session: Session, run: UUID) -> tuple[str, str, UUID]:
    *_, first = _expired(session, run)
    assert session.recover(run, "a", first)["outcome"] == "recovered"
    return _expired(session, run)


def _settled(session: Session, run: UUID) -> tuple[str, str, UUID]:
    token = session.claimed(run, "a")
    session.complete(token, RESULT)
    return "b", "a", token


def _dispatched(session: Session, run: UUID) -> tuple[str, str, UUID]:
    *_, token = _settled(session, run)
    assert session.reconcile(run)["outcome"] == "dispatched"
    return "b", "a", token


def _redirtied(session: Session, run: UUID) -> tuple[str, str, UUID]:
    token = _b_held(session, run)
    session.request(run)
    return "b", "b", token


def _broken(session: Session, run: UUID) -> tuple[str, str, UUID]:
    scene = _redirtied(session, run)
    session.execute("set session_replication_role = replica")
    session.execute("update pgflow.run_work set definition_sha256 = sha256('another') where run_id = %s", run)
    session.execute("reset session_replication_role")
    return scene


def _done(session: Session, run: UUID) -> tuple[str, str, UUID]:
    token = _b_held(session, run)
    session.complete(token, RESULT)
    return "b", "b", token


def _released(session: Session, run: UUID) -> tuple[str, str, UUID]:
    scene = _done(session, run)
    assert session.settle_down(run) == ["finalized", "clean"]
    session.release(run)
    return scene


_BUILD: dict[str, Callable[[Session, UUID], tuple[str, str, UUID]]] = {
    "queued": _queued,
    "held": _held,
    "expired": _expired,
    "last": _last,
    "settled": _settled,
    "dispatched": _dispatched,
    "redirtied": _redirtied,
    "broken": _broken,
    "done": _done,
    "released": _released,
}
"""What brings a started run into each situation; returns the scene's ``wanted``, ``held`` and ``token``."""


def build(session: Session, situation: str, flow: str) -> Scene:
    """Make a situation of a run of a flow that is defined already."""
    run = uuid4()
    if situation == "defined":
        return Scene(flow, run, *_queued(session, run))
    assert session.start(flow, "{}", run)["outcome"] == "started"
    return Scene(flow, run, *_BUILD[situation](session, run))


# -- calls -----------------------------------------------------------------------------------------

RESULT = {"result": [1, "two", None]}
OTHERWISE = {"result": [1, "two", False]}
OVERSIZE = '"' + "x" * 65_536 + '"'

CALLS: dict[str, Callable[[Session, Scene], Any]] = {
    "start": lambda session, scene: session.start(scene.flow, "{}", scene.run),
    "add_step": lambda session, scene: session.execute("select pgflow.add_step(%s, 'c')", scene.flow),
    "reroute": lambda session, scene: session.execute(
        "update pgflow.steps set queue_name = %s where flow_slug = %s and step_slug = 'b'",
        f"{scene.flow}_elsewhere",
        scene.flow,
    ),
    "delete": lambda session, scene: session.execute("select pgflow.delete_flow_and_data(%s)", scene.flow),
    "claim": lambda session, scene: session.claim(scene.run, scene.wanted),
    "reconcile": lambda session, scene: session.reconcile(scene.run),
    "request": lambda session, scene: session.request(scene.run),
    "succeed": lambda session, scene: session.complete(scene.token, RESULT),
    "succeed otherwise": lambda session, scene: session.complete(scene.token, OTHERWISE),
    "fail": lambda session, scene: session.fail(scene.token, "it broke"),
    "oversize": lambda session, scene: session.complete(scene.token, OVERSIZE),
    "recover": lambda session, scene: session.recover(scene.run, scene.held, scene.token),
}


def word(outcome: Any) -> str:
    """An outcome in the table's words."""
    if outcome is None:
        return "done"
    return str(outcome["outcome"]) + (", replayed" if outcome.get("replayed") else "")


def call(session: Session, name: str, scene: Scene) -> str:
    """Make a call; what came of it in the table's words, or an error's SQLSTATE; a deadlock is none."""
    try:
        return word(CALLS[name](session, scene))
    except psycopg.errors.DeadlockDetected:
        raise
    except psycopg.Error as error:
        return str(error.sqlstate)
