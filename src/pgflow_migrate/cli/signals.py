"""SIGTERM and SIGHUP as Ctrl-C: what runs is cancelled and rolled back by the code that is running."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from pgflow_migrate.errors import Interrupted


class Terminated(KeyboardInterrupt):
    """A signal other than Ctrl-C asked the process to end; ``str()`` is its name."""


def _raise(number: int, frame: FrameType | None) -> NoReturn:
    raise Terminated(signal.Signals(number).name)


@contextlib.contextmanager
def as_interrupt() -> Iterator[None]:
    """Within it SIGTERM and SIGHUP raise :class:`Terminated`; the handlers before it come back at its end."""
    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    # A signal that the parent chose to ignore (nohup) stays ignored.
    before = {number: signal.getsignal(number) for number in numbers}
    handled = {number: handler for number, handler in before.items() if handler is not signal.SIG_IGN}
    for number in handled:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def as_end_of_trial() -> Iterator[None]:
    """Within it databases are made to be thrown away; an interrupt is told so, whatever it interrupted.

    To be put around what throws them away. The upgrade that ran was none of the user's.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        first: BaseException = interrupt
        while isinstance(first, Interrupted) and isinstance(first.__cause__, KeyboardInterrupt):
            first = first.__cause__
        raise Interrupted(
            f"Ended by {str(first) or 'Ctrl-C'}.", "The databases that were made for it are gone."
        ) from interrupt
