"""Heartbeats from a thread of their own, so that a long handler does not make its worker look dead."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import psycopg

from pgflow_migrate.worker import calls
from pgflow_migrate.worker.retries import PASSING, describe
from pgflow_migrate.worker.session import Session


class Heartbeat:
    """Says at intervals that the worker lives, and learns whether it is to leave."""

    def __init__(
        self,
        session: Session,
        worker_id: str,
        interval: float,
        dismissed: Callable[[str], None],
        log: logging.Logger,
    ) -> None:
        """Prepare it.

        Args:
            session: a connection that nobody else waits on.
            worker_id: the registered worker.
            interval: seconds from one to the next.
            dismissed: called with the reason when the worker is deprecated or its row is gone.
            log: for failures, which are passed over until the next beat.
        """
        self._session = session
        self._worker_id = worker_id
        self._interval = interval
        self._dismissed = dismissed
        self._log = log
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Send the first one, so that a worker that is to leave reads no message; then go on by itself."""
        self._beat()
        self._thread.start()

    def end(self) -> None:
        """Send no more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._interval):
            self._beat()

    def _beat(self) -> None:
        try:
            state = self._session.call(lambda connection: calls.heartbeat(connection, self._worker_id))
        except (*PASSING, psycopg.Error) as error:
            self._log.warning("the heartbeat failed: %s", describe(error))
            return
        if not state.registered:
            self._dismissed("its row in pgflow.workers is gone")
        elif state.deprecated:
            self._dismissed("it is deprecated")
