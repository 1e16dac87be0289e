"""A database with runs of every kind, and how statements on it are refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.dirty_runs.protocol import Session

from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

_CLAIM = (
    "insert into pgflow.task_claims (claim_id, run_id, step_slug, task_index, claim_number, queue_name,"
    " message_id, worker_id, max_attempts, when_exhausted, timeout_seconds, claimed_at, lease_expires_at,"
    " state{columns}) select {identity}, t.run_id, {step}, t.task_index, {number}, {queue},"
    " {message}, gen_random_uuid(), 1, 'fail', 60, now(), now() + interval '90 s', {state}{values}"
    " from pgflow.step_tasks t where t.run_id = '{{{run}}}' and t.step_slug = 'a'"
)


def claim_on(
    run: str,
    *,
    identity: str = "gen_random_uuid()",
    step: str = "t.step_slug",
    number: int = 1,
    queue: str = "t.queue_name",
    message: str = "t.message_id",
    state: str = "'active'",
    columns: str = "",
    values: str = "",
) -> str:
    """Make a claim by hand on the A of a run of the world; arguments are SQL."""
    return _CLAIM.format(
        run=run,
        identity=identity,
        step=step,
        number=number,
        queue=queue,
        message=message,
        state=state,
        columns=columns,
        values=values,
    )


@dataclass(frozen=True)
class World:
    """A database that many tests look at, and none changes.

    Attributes:
        session: on the database; without triggers it would allow everything.
        ids: of runs (queued, held, pending, completed, failed, takeover, v1) and of the claims on their A
            (held_claim, revoked_claim, second_claim and so on).
    """

    session: Session
    ids: dict[str, str]

    def run(self, name: str) -> UUID:
        """The id of a run."""
        return UUID(self.ids[name])

    def said(self, text: str) -> str:
        """``text`` with ids for ``{names}``."""
        return text.format(**self.ids)


@contextmanager
def made(server: Server, templates: Templates, name: str) -> Iterator[World]:
    """A world in a database of that name, dropped at the end."""
    session = Session(templates.clone("dirty_runs", name))
    session.define()
    session.define("other")
    ids: dict[str, Any] = {
        "queued": session.started(),
        "held": session.started(),
        "pending": session.started(),
        "completed": session.started(),
        "failed": session.started(),
        "takeover": session.started(),
        "v1": session.value("select run_id from pgflow.start_flow('demo', '{}')"),
    }
    ids["held_claim"] = session.claimed(ids["held"], "a")
    ids["pending_claim"] = session.claimed(ids["pending"], "a")
    session.complete(ids["pending_claim"], 1)
    ids["completed_claim"] = session.claimed(ids["completed"], "a")
    session.complete(ids["completed_claim"], 1)
    session.settle_down(ids["completed"])
    session.complete(session.claimed(ids["completed"], "b"), 2)
    session.settle_down(ids["completed"])
    ids["failed_claim"] = session.claimed(ids["failed"], "a")
    session.fail(ids["failed_claim"])
    ids["revoked_claim"] = session.claimed(ids["takeover"], "a")
    session.expire(ids["revoked_claim"])
    session.recover(ids["takeover"], "a", ids["revoked_claim"])
    ids["second_claim"] = session.claimed(ids["takeover"], "a")
    yield World(session, {name: str(value) for name, value in ids.items()})
    session.close()
    server.drop_database(name)


def refusal(session: Session, statement: str) -> psycopg.Error:
    """How a statement, or the end of its transaction, is refused; it is rolled back."""
    with pytest.raises(psycopg.Error) as refused, session.connection.transaction():
        session.execute(f"{statement}; set constraints all immediate")
    return refused.value


def goes_through_without(session: Session, what: str, statement: str) -> None:
    """A statement goes through once ``what`` was executed; both are rolled back."""
    with session.connection.transaction(force_rollback=True):
        session.execute(what)
        session.execute(statement)
        session.execute("set constraints all immediate")


def assert_refused(session: Session, statement: str, sqlstate: str, message: str) -> None:
    """Refused with that SQLSTATE and message; ``%`` stands for anything."""
    refused = refusal(session, statement)
    said = refused.diag.message_primary or ""
    first, *rest = message.split("%")
    assert refused.sqlstate == sqlstate, said
    assert said.startswith(first), said
    for part in rest:
        assert part in said, said
