"""``worker``: work off the queue of one flow."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from pgflow_migrate.cli import output
from pgflow_migrate.cli.options import Whole, dsn_option, once, target_of
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_COULD_NOT_RUN, EXIT_OK
from pgflow_migrate.layout import printable

if TYPE_CHECKING:
    from pgflow_migrate.worker import Summary, Worker

SIGNALS = ("SIGTERM", "SIGINT", "SIGQUIT", "SIGHUP")


@click.command()
@dsn_option
@click.option(
    "--flow",
    "flow_name",
    multiple=True,
    type=Whole(),
    callback=once("A worker works off one flow: start one for each."),
    required=True,
    metavar="MODULE:ATTRIBUTE",
    help="The flow, such as flows:orders.",
)
@click.option(
    "--name",
    envvar="WORKER_NAME",
    metavar="NAME",
    help="Function name to register under; default: WORKER_NAME, else the flow's slug and -worker.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1),
    default=10,
    show_default=True,
    help="Handlers that run at a time.",
)
@click.option(
    "--batch", type=click.IntRange(1), default=10, show_default=True, help="Messages read at most at a time."
)
@click.option(
    "--max-poll",
    type=click.IntRange(1),
    default=2,
    show_default=True,
    metavar="SECONDS",
    help="How long a read waits in the database for messages.",
)
@click.option(
    "--until-idle",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="End when for so long no message came and no handler ran; for CI and demonstrations.",
)
@click.pass_context
def worker(
    ctx: click.Context,
    dsn: str | None,
    flow_name: str,
    name: str | None,
    concurrency: int,
    batch: int,
    max_poll: int,
    until_idle: float | None,
) -> None:
    """Work off the queue of one flow with handlers written in Python.

    The first SIGTERM, SIGINT, SIGQUIT or SIGHUP lets the handlers that run finish, a second one ends it at
    once with 1.

    Exits 0 when it was told to leave or is idle, 3 when database and worker do not go together, when the
    function is paused, or when it met work that it cannot do.

    \b
    pgflow-migrate worker --flow flows:orders --until-idle 5
    """
    from pgflow_migrate.worker import Ending, Settings, Worker
    from pgflow_migrate.worker.loading import load_flow

    flow = load_flow(flow_name, Path.cwd())
    settings = Settings(concurrency=concurrency, batch_size=batch, max_poll=max_poll, until_idle=until_idle)
    with _logging(debug=bool(ctx.find_root().params.get("debug"))) as log:
        summary = _run(Worker(target_of(dsn), flow, name=name, settings=settings, log=log), log)
        log.info(
            "worker %s has left (%s): %d completed, %d failed, %d late, %d unreported",
            summary.worker_id,
            summary.ending.value,
            summary.completed,
            summary.failed,
            summary.late,
            summary.unreported,
        )
    ctx.exit(EXIT_BLOCKED if summary.ending is Ending.FATAL else EXIT_OK)


class _Stderr(logging.Handler):
    """Lines on stderr, one a record."""

    def emit(self, record: logging.LogRecord) -> None:
        if output.stderr_is_json():
            more = {"traceback": self.format(record)} if record.exc_info else {}
            output.log(record.levelname.lower(), record.getMessage(), **more)
        else:
            output.echo("\n".join(map(printable, self.format(record).split("\n"))), err=True)


@contextmanager
def _logging(*, debug: bool) -> Iterator[logging.Logger]:
    log = logging.getLogger("pgflow_migrate.worker")
    handler = _Stderr()
    formatter = logging.Formatter(
        "%(asctime)s.%(msecs)03d UTC %(levelname)s %(message)s", datefmt="%Y-%m-%d %H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    before = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.DEBUG if debug else logging.INFO)
    log.propagate = False
    try:
        yield log
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before


def _run(started: Worker, log: logging.Logger) -> Summary:
    """Run it in a thread, so that a signal never interrupts a lock that stopping needs."""
    received: list[int] = []
    outcome: list[Summary | BaseException] = []

    def note(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(EXIT_COULD_NOT_RUN)  # handlers' threads would hold up any other exit

    def work() -> None:
        try:
            outcome.append(started.run())
        except BaseException as error:
            outcome.append(error)

    before = {number: signal.signal(number, note) for number in _signals()}
    thread = threading.Thread(target=work, name="worker")
    try:
        thread.start()
        told = False
        while thread.is_alive():
            thread.join(0.1)
            if received and not told:
                told = True
                log.info("%s: the handlers that run are finished first", signal.Signals(received[0]).name)
                started.stop()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    result = outcome[0]
    if isinstance(result, BaseException):
        raise result
    return result


def _signals() -> list[int]:
    if threading.current_thread() is not threading.main_thread():
        return []  # only the main thread may; in a test's thread nobody sends any
    numbers = [getattr(signal, name) for name in SIGNALS if hasattr(signal, name)]
    # A signal that the parent chose to ignore (nohup) stays ignored.
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
