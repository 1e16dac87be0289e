"""Reporting within bounds: so many attempts, so many seconds, and then an honest "unconfirmed"."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from uuid import UUID

from pgflow_migrate.dirty_runs.limits import limit
from pgflow_migrate.dirty_runs.outcomes import Answer, Outcome, Unconfirmed
from pgflow_migrate.worker.retries import describe

Send = Callable[[UUID, Outcome], Answer]

FIRST_DELAY = 0.25
"""Seconds between the first failed attempt and the second; doubled with each further one."""


# What attempts of a round have come to; None is for a look at what has happened meanwhile.
_Ended = queue.SimpleQueue[Answer | Exception | None]


class Report:
    """The outcome of one claim, on its way to the database. It is kept as long as nobody has answered.

    Every attempt sends the same claim and the same canonical outcome; nothing here runs a handler. An attempt
    runs in a thread of its own, because nothing can end a wait for a server but the server. One that ends
    after its round is over is still heard: see :attr:`late`.

    Args:
        token: the claim.
        outcome: what its handler came to.
        send: one attempt; returns the database's answer or raises.
        attempts: at most so many in a round.
        seconds: for the whole round, by the clock: attempts in flight, delays between them, shutdown.
    """

    def __init__(
        self,
        token: UUID,
        outcome: Outcome,
        send: Send,
        *,
        attempts: int = limit("report_attempts"),
        seconds: float = limit("report_deadline_seconds"),
    ) -> None:
        self.token = token
        self.outcome = outcome
        self._send = send
        self._attempts = attempts
        self._seconds = seconds
        self._lock = threading.Lock()
        self._round: _Ended | None = None
        self._answer: Answer | None = None
        self._shut_down = False
        self._late: list[Answer | Exception] = []

    @property
    def answer(self) -> Answer | None:
        """The definite answer, as soon as there is one, also when it came late."""
        with self._lock:
            return self._answer

    @property
    def late(self) -> tuple[Answer | Exception, ...]:
        """What attempts came to after their round was over."""
        with self._lock:
            return tuple(self._late)

    def shut_down(self) -> None:
        """The process has to end now: a round that is under way ends as unconfirmed; no other begins."""
        with self._lock:
            self._shut_down = True
            if self._round is not None:
                self._round.put(None)

    def submit(self) -> Answer | Unconfirmed:
        """One round of reporting; after an unconfirmed one there may be another. For one thread at a time.

        Returns:
            The database's answer, which is never asked for again; or :class:`Unconfirmed`.
        """
        end = time.monotonic() + self._seconds
        ended: _Ended = queue.SimpleQueue()
        with self._lock:
            if self._answer is not None:
                return self._answer
            if self._shut_down:
                return Unconfirmed("shutdown", 0, in_flight=False, last_error=None)
            self._round = ended
        try:
            found = self._rounds(ended, end)
        finally:
            with self._lock:
                self._round = None
                # What came between the last look and now.
                while not ended.empty():
                    self._hear_late(ended.get())
        answer = self.answer
        return found if answer is None else answer

    def _rounds(self, ended: _Ended, end: float) -> Answer | Unconfirmed:
        error: str | None = None
        for number in range(1, self._attempts + 1):
            self._begin(ended)
            try:
                one = ended.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                return Unconfirmed("deadline", number, in_flight=True, last_error=error)
            if one is None:
                return Unconfirmed("shutdown", number, in_flight=True, last_error=error)
            if not isinstance(one, Exception):
                with self._lock:
                    self._answer = one
                return one
            error = describe(one)
            if number == self._attempts:
                return Unconfirmed("attempts", number, in_flight=False, last_error=error)

            delay = FIRST_DELAY * 2 ** (number - 1)
            try:
                # Nothing of this round is in flight: what comes now can only wake us.
                ended.get(timeout=max(0.0, min(delay, end - time.monotonic())))
                return Unconfirmed("shutdown", number, in_flight=False, last_error=error)
            except queue.Empty:
                if time.monotonic() >= end:
                    return Unconfirmed("deadline", number, in_flight=False, last_error=error)
        raise AssertionError("a round has at least one attempt")

    def _begin(self, ended: _Ended) -> None:
        attempt = threading.Thread(
            target=self._attempt, args=(ended,), name=f"report-{self.token}", daemon=True
        )
        try:
            attempt.start()
        except RuntimeError as error:
            # No thread to be had, now or because the process ends: an attempt that failed.
            ended.put(error)

    def _attempt(self, ended: _Ended) -> None:
        result: Answer | Exception
        try:
            result = self._send(self.token, self.outcome)
        except Exception as error:
            result = error
        with self._lock:
            if self._round is ended:
                ended.put(result)
            else:
                self._hear_late(result)

    def _hear_late(self, result: Answer | Exception | None) -> None:
        """Under the lock. What was sent is the same, so a late answer is as good as an early one."""
        if result is None:
            return
        self._late.append(result)
        if self._answer is None and not isinstance(result, Exception):
            self._answer = result
            if self._round is not None:
                # Of an earlier round: this one has nothing left to ask.
                self._round.put(None)
