"""One task at a time: reserve, claim, run the handler once, report within bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID, uuid4

from pgflow_migrate.dirty_runs import client
from pgflow_migrate.dirty_runs.client import Connection
from pgflow_migrate.dirty_runs.outcomes import Answer, Claimed, NotClaimed, Outcome, Unconfirmed
from pgflow_migrate.dirty_runs.reporter import Report, Send

Handler = Callable[[Claimed], object]


@dataclass(frozen=True)
class Executed:
    """A claim whose handler has run.

    Attributes:
        claimed: the claim.
        report: its outcome; keep it while ``answer`` is :class:`Unconfirmed`, and submit it again.
        answer: what the first round of reporting came to.
    """

    claimed: Claimed
    report: Report
    answer: Answer | Unconfirmed


class Executor:
    """Executes tasks of protocol 2 with handlers written in Python.

    Args:
        connection: for reservations and claims; in autocommit mode, so that a claim is committed before its
            handler runs: until then nobody else sees it, and its report would be refused.
        send: one attempt to report, see :class:`pgflow_migrate.dirty_runs.client.Sender`.
        handlers: by step slug.
        worker_id: who claims; for diagnosis only.
        make_report: how an outcome becomes a report; for other bounds.
    """

    def __init__(
        self,
        connection: Connection,
        send: Send,
        handlers: Mapping[str, Handler],
        worker_id: UUID,
        make_report: Callable[[UUID, Outcome, Send], Report] = Report,
    ) -> None:
        self._connection = connection
        self._send = send
        self._handlers = handlers
        self._worker_id = worker_id
        self._make_report = make_report

    def work_one(self, queue_name: str, reserve_seconds: int) -> Executed | NotClaimed | None:
        """Take one message, if there is one, and do its task, if it can be claimed.

        Returns:
            None when no message of a task was there.

        Raises:
            ValueError: the connection is not in autocommit mode; nothing was done.
            psycopg.Error: a reservation or claim failed. The lease or the reservation brings the task back.
        """
        if not self._connection.autocommit:
            raise ValueError("the connection of an executor must be in autocommit mode")
        reservation = client.reserve(self._connection, queue_name, reserve_seconds)
        if reservation is None:
            return None
        claimed = client.claim(self._connection, reservation, self._worker_id, uuid4())
        return claimed if isinstance(claimed, NotClaimed) else self.execute(claimed)

    def execute(self, claimed: Claimed) -> Executed:
        """Run the claim's handler, once, and report what came of it."""
        report = self._make_report(claimed.token, self._run(claimed), self._send)
        return Executed(claimed, report, report.submit())

    def _run(self, claimed: Claimed) -> Outcome:
        handler = self._handlers.get(claimed.step_slug)
        if handler is None:
            return Outcome.failed(f'no handler for step "{claimed.step_slug}"')
        try:
            return Outcome.succeeded(handler(claimed))
        except Exception as error:
            return Outcome.failed(_described(error))


def _described(error: Exception) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:
        # An error that cannot say what it is has failed all the same.
        text = ""
    return f"{name}: {text}" if text else name
