"""The worker: handshake, registration, poll, claim, handlers, reports, and an orderly end."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

import psycopg

from pgflow_migrate.database import Connection
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.worker import calls, handshake
from pgflow_migrate.worker.claims import Claimed, ClaimedTask, Fatal
from pgflow_migrate.worker.flow import Context, Flow
from pgflow_migrate.worker.heartbeat import Heartbeat
from pgflow_migrate.worker.reports import Patience, Reports, Result, error_text, to_json
from pgflow_migrate.worker.retries import PASSING, Backoff, RightMissingError, UnreachableError, describe
from pgflow_migrate.worker.session import Session
from pgflow_migrate.worker.settings import Settings
from pgflow_migrate.worker.summary import Ending, Summary

LOG = logging.getLogger("pgflow_migrate.worker")

_T = TypeVar("_T")


class Worker:
    """Works off the queue of one flow; :meth:`run` once, :meth:`stop` from any thread.

    Three connections: one polls and claims, one reports results, one carries the heartbeat.
    """

    def __init__(
        self,
        dsn: str,
        flow: Flow,
        *,
        name: str | None = None,
        settings: Settings | None = None,
        log: logging.Logger = LOG,
    ) -> None:
        """Nothing is connected yet.

        Args:
            dsn: the connection string.
            flow: the flow with its handlers.
            name: the function name to register under; default: the flow's slug and ``-worker``.
            settings: times and limits.
            log: where it tells what happens, without any input, output or message body.
        """
        self.worker_id = str(uuid.uuid4())
        self.name = name or f"{flow.slug}-worker"
        self._flow = flow
        self._settings = settings or Settings()
        self._log = log
        self._stopping = threading.Event()
        self._endings: list[Ending] = []
        self._session, report_session, beat_session = (Session(dsn) for _ in range(3))
        self._sessions = (self._session, report_session, beat_session)
        self._patience = Patience(self._settings, self._stopping, log)
        self._reports = Reports(
            report_session, self._patience, self.worker_id, self._settings.last_reports, log
        )
        self._heartbeat = Heartbeat(
            beat_session, self.worker_id, self._settings.heartbeat_interval, self._dismissed, log
        )
        self._backoff = Backoff(self._settings.first_retry, self._settings.longest_retry)
        self._queue_name = flow.queue_name
        self._running: set[Future[Result]] = set()
        self._results: list[Result] = []
        self._last_activity = 0.0
        self._unclaimed: Sequence[str] = ()
        self._fatal: Fatal | None = None

    def stop(self) -> None:
        """Claim nothing more; :meth:`run` returns when the handlers that run have ended."""
        self._leave(Ending.STOPPED)

    def run(self) -> Summary:
        """Work until there is a reason to leave.

        Raises:
            HandshakeError: database and worker do not go together. Nothing was registered or read.
            PausedError: the function is paused. The same.
            RightMissingError: the role may not do what a worker does.
            PgflowMigrateError: the database could not be reached or used to begin with.
        """
        try:
            self._shake_hands()
            with self._registered():
                with ThreadPoolExecutor(self._settings.concurrency, "handler") as pool:
                    try:
                        self._work(pool)
                    finally:
                        self._stopping.set()
                        self._release()
                self._collect(self._running)
        finally:
            for session in self._sessions:
                session.close()
        return self._summary()

    # -- beginning and end -----------------------------------------------------------------------

    def _shake_hands(self) -> None:
        """Everything that may keep the worker from starting."""
        self._session.call(lambda connection: None)  # a wrong connection string is told, not tried again
        compilation = self._first("the handshake", lambda c: handshake.shake_hands(c, self._flow))
        self._queue_name = compilation.queue_name
        self._first("looking for a pause", lambda c: handshake.refuse_paused(c, self.name))
        self._log.info(
            "worker %s of function %s: flow %s %s, queue %s",
            self.worker_id,
            self.name,
            self._flow.slug,
            compilation.status,
            self._queue_name,
        )

    @contextlib.contextmanager
    def _registered(self) -> Iterator[None]:
        """Registered and with a heartbeat; at the end marked as stopped, as far as the database lets us."""
        self._first(
            "the registration",
            lambda connection: calls.register(connection, self._queue_name, self.worker_id, self.name),
        )
        try:
            self._heartbeat.start()
            yield
        finally:
            self._stopping.set()
            self._heartbeat.end()
            try:
                self._patience.call(
                    self._session,
                    "mark_worker_stopped",
                    lambda connection: calls.mark_worker_stopped(connection, self.worker_id),
                    grace=self._settings.last_reports,
                )
            except (*PASSING, psycopg.Error) as error:
                self._log.warning("the worker could not be marked as stopped: %s", describe(error))

    def _first(self, what: str, work: Callable[[Connection], _T]) -> _T:
        """A call of the start, in which an error that does not pass is final."""
        try:
            return self._patience.call(self._session, what, work, grace=0)
        except psycopg.Error as error:
            hint = " ".join((error.diag.message_hint or "").split())
            raise PgflowMigrateError(f"The worker could not start: {describe(error)}.", hint) from error

    def _leave(self, ending: Ending) -> None:
        self._endings.append(ending)
        self._stopping.set()

    def _dismissed(self, why: str) -> None:
        if not self._stopping.is_set():
            self._log.info("worker %s leaves: %s", self.worker_id, why)
            self._leave(Ending.DISMISSED)

    def _summary(self) -> Summary:
        return Summary(
            worker_id=self.worker_id,
            function_name=self.name,
            queue_name=self._queue_name,
            ending=Ending.FATAL if self._fatal else self._endings[0],
            completed=self._results.count(Result.COMPLETED),
            failed=self._results.count(Result.FAILED),
            late=self._results.count(Result.LATE),
            unreported=self._results.count(Result.UNREPORTED),
            fatal=self._fatal,
        )

    # -- poll and claim --------------------------------------------------------------------------

    def _work(self, pool: ThreadPoolExecutor) -> None:
        self._last_activity = time.monotonic()
        while not self._stopping.is_set():
            free = self._await_free_thread()
            if self._stopping.is_set():
                return
            try:
                batch = self._read(free)
                if self._stopping.is_set():
                    return
                outcome = self._claim(batch) if batch else None
            except psycopg.errors.InsufficientPrivilege as error:
                raise RightMissingError(error) from error
            except (UnreachableError, psycopg.Error) as error:
                delay = self._backoff.next()
                self._log.warning("polling failed, again in %.1f s: %s", delay, describe(error))
                self._stopping.wait(delay)
                continue
            self._backoff.reset()
            if isinstance(outcome, Fatal):
                self._stop_at(outcome)
            elif outcome is None:
                self._leave_when_idle()
            else:
                self._begin(pool, outcome)

    def _await_free_thread(self) -> int:
        """Wait until a handler can start at once; returns how many can."""
        self._collect({future for future in self._running if future.done()})
        if len(self._running) >= self._settings.concurrency:
            done, _ = wait(self._running, return_when=FIRST_COMPLETED)
            self._collect(done)
        return self._settings.concurrency - len(self._running)

    def _read(self, free: int) -> Sequence[str]:
        settings = self._settings
        self._unclaimed = self._session.call(
            lambda connection: calls.read_messages(
                connection,
                self._queue_name,
                vt=settings.visibility_timeout,
                qty=min(free, settings.batch_size),
                max_poll_seconds=settings.max_poll,
                poll_interval_ms=settings.poll_interval,
            )
        )
        return self._unclaimed

    def _claim(self, msg_ids: Sequence[str]) -> Claimed | Fatal:
        outcome = self._session.call(
            lambda connection: calls.claim_tasks(
                connection, self._queue_name, self._flow.slug, msg_ids, self.worker_id
            )
        )
        self._unclaimed = ()
        return outcome

    def _release(self) -> None:
        """Let others have what was read and not claimed; failing that, they have it when its time is over."""
        if self._unclaimed:
            try:
                self._session.call(
                    lambda connection: calls.release_messages(connection, self._queue_name, self._unclaimed)
                )
            except (*PASSING, psycopg.Error) as error:
                self._log.warning("messages that were read are hidden for a moment: %s", describe(error))

    def _begin(self, pool: ThreadPoolExecutor, outcome: Claimed) -> None:
        # What was busy comes back when it is visible again: until then the queue is not idle.
        self._last_activity = time.monotonic() + (self._settings.visibility_timeout if outcome.busy else 0)
        if outcome.foreign:
            self._log.warning(
                "queue %s held messages that are not pgflow's; archived: %s",
                outcome.queue_name,
                ", ".join(outcome.foreign),
            )
        for fate in ("deferred", "archived", "busy"):
            messages = getattr(outcome, fate)
            if messages:
                self._log.debug("queue %s: %s: %s", outcome.queue_name, fate, ", ".join(messages))
        self._running |= {pool.submit(self._do, task) for task in outcome.tasks}

    def _stop_at(self, fatal: Fatal) -> None:
        self._fatal = fatal
        paused = fatal.paused_function
        self._log.error(
            "worker %s of queue %s stops: %s; nothing was claimed%s",
            self.worker_id,
            fatal.queue_name,
            fatal.reason,
            f"; function {paused} is paused until: {handshake.resume_statement(paused)}" if paused else "",
        )
        self._leave(Ending.FATAL)

    def _leave_when_idle(self) -> None:
        limit = self._settings.until_idle
        if limit is None or any(not future.done() for future in self._running):
            return
        self._collect(set(self._running))
        if time.monotonic() - self._last_activity >= limit:
            self._leave(Ending.IDLE)

    # -- tasks -----------------------------------------------------------------------------------

    def _collect(self, done: set[Future[Result]]) -> None:
        """Take the results of handlers that have ended; waits for those that have not."""
        if done:
            self._results += [future.result() for future in done]
            self._running = self._running - done
            self._last_activity = max(self._last_activity, time.monotonic())

    def _do(self, task: ClaimedTask) -> Result:
        """Runs in a thread: the handler, and the report on it."""
        try:
            output = to_json(self._flow.handler(task.step_slug)(self._context(task)))
        except BaseException as error:  # SystemExit too: what a handler raises ends its attempt, nothing else
            self._log.debug("traceback of %s", task, exc_info=error)
            return self._reports.fail(task, error_text(error))
        return self._reports.complete(task, output)

    def _context(self, task: ClaimedTask) -> Context:
        @functools.cache
        def flow_input() -> object:
            return self._reports.flow_input(task.run_id) if task.flow_input is None else task.flow_input

        return Context(
            flow_slug=task.flow_slug,
            run_id=task.run_id,
            step_slug=task.step_slug,
            task_index=task.task_index,
            queue_name=task.queue_name,
            msg_id=task.msg_id,
            input=task.input,
            read_flow_input=flow_input,
        )
