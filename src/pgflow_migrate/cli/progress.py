"""Progress on stderr: lines, and on a terminal a bar with what runs now and how long it may take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING

from pgflow_migrate import durations
from pgflow_migrate.cli import output
from pgflow_migrate.layout import printable
from pgflow_migrate.upgrade.progress import (
    Event,
    FileDone,
    FileStarted,
    Found,
    Listener,
    Note,
    RevisionApplied,
    RevisionStarted,
)

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, Task

_now = monotonic
_FENCE = "fence.sql"  # until it is done an upgrade waits for others, and nobody knows how long


@contextlib.contextmanager
def shown(*, files: bool, quiet: bool = False, expected: Callable[[], float | None]) -> Iterator[Listener]:
    """Within it, the listener shows what it hears; at its end nothing but the lines is left.

    Args:
        files: whether a log, which has no bar, gets a line for each SQL file too.
        quiet: show notes alone: a program reads the result.
        expected: asked on a terminal for the seconds from the fence to the end; None where nobody knows.
    """
    console = output.console(stderr=True)
    if quiet or not console.is_terminal:

        def log(event: Event) -> None:
            if quiet and not isinstance(event, Note):
                return
            if not isinstance(event, FileDone) and (files or not isinstance(event, FileStarted)):
                _print(console, line(event))

        yield log
        return
    seconds = expected()
    with _bar(console) as bar:
        task = bar.add_task("Connecting", expected=None)

        def listen(event: Event) -> None:
            if isinstance(event, (RevisionStarted, FileStarted)):
                bar.update(task, description=line(event).strip(), refresh=True)
            elif not isinstance(event, FileDone):
                _print(console, line(event))
            elif event.file == _FENCE:
                bar.reset(task, expected=seconds)

        yield listen


@contextlib.contextmanager
def working(what: str, *, quiet: bool, expected: Callable[[], float | None]) -> Iterator[None]:
    """Within it a terminal shows what is being done; a log does not, because nothing is known until the end.

    Args:
        what: such as ``Auditing``.
        quiet: show nothing: a program reads the result.
        expected: asked on a terminal for the seconds that it may take; None where nobody knows.
    """
    console = output.console(stderr=True)
    if quiet or not console.is_terminal:
        yield
        return
    with _bar(console) as bar:
        bar.add_task(what, expected=expected())
        yield


class Meter:
    """What work tells that can be counted. This one tells nobody."""

    def say(self, text: str) -> None:
        """A line that stays."""

    def phase(self, text: str) -> None:
        """What begins: a line of a log; on a terminal it goes away with the bar."""

    def doing(self, what: str, done: int = 0, of: int | None = None, *, even: bool = True) -> None:
        """What is being done, for a terminal alone.

        Args:
            what: such as the name of a table.
            done: how many are done.
            of: how many there are; None when nobody knows.
            even: whether they take about the same time each, so that there can be an estimate.
        """


class _Log(Meter):
    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        _print(self._console, text)

    phase = say


class _Live(_Log):
    def __init__(self, console: Console, bar: Progress, what: str) -> None:
        super().__init__(console)
        self._bar = bar
        self._counted: tuple[int, int | None] = (0, None)
        self._begun = (0, 0.0)  # what was done when counting began, and when that was
        # Without a total of rich's own, which cannot be taken back, and stops the clock when it is reached.
        self._task = bar.add_task(what, total=None, of=None, left=None)

    def phase(self, text: str) -> None:
        self.doing(text)

    def doing(self, what: str, done: int = 0, of: int | None = None, *, even: bool = True) -> None:
        now = _now()
        before, of_before = self._counted
        if of != of_before or done < before:
            self._begun = (done, now)
        self._counted = (done, of)
        self._bar.update(
            self._task,
            description=printable(what),
            completed=done,
            of=of,
            left=_left(done - self._begun[0], now - self._begun[1], of - done) if of and even else None,
            refresh=True,
        )


def _left(done: int, seconds: float, more: int) -> float | None:
    """How long the rest takes if it goes on like this; None before there is anything to judge by."""
    return seconds / done * more if done > 0 and seconds > 0 else None


@contextlib.contextmanager
def counted(what: str, *, quiet: bool) -> Iterator[Meter]:
    """Within it, the meter shows what it is told; at its end nothing but the lines is left.

    Args:
        what: is done before the meter is told anything, such as ``Connecting``.
        quiet: show nothing: a program reads the result.
    """
    console = output.console(stderr=True)
    if quiet:
        yield Meter()
    elif not console.is_terminal:
        yield _Log(console)
    else:
        with _counting_bar(console) as bar:
            yield _Live(console, bar, what)


def _print(console: Console, text: str) -> None:
    console.print(printable(text), markup=False, emoji=False, soft_wrap=True)


def _counting_bar(console: Console) -> Progress:
    """A line that goes away: a spinner, what is done, how many of how many, the time spent and left."""
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn

    class Count(ProgressColumn):
        def render(self, task: Task) -> RenderableType:
            of, left = task.fields["of"], task.fields["left"]
            number = "" if of is None else f"{task.completed:,.0f} of {of:,}, "
            more = "" if left is None else f", about {durations.age(left)} left"
            return _barred(of, task.completed, f"{number}{task.elapsed or 0:.0f} s{more}")

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        Count(),
        console=console,
        transient=True,
    )


def _bar(console: Console) -> Progress:
    """A line that goes away: a spinner, what is done, the share of the expected time, the time."""
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn

    class Share(ProgressColumn):
        """Of the expected time; it stays short of full, because it is an estimate."""

        def render(self, task: Task) -> RenderableType:
            expected, spent = task.fields["expected"], task.elapsed or 0.0
            about = "" if expected is None else f" of about {expected:.0f} s"
            return _barred(expected, min(spent, 0.97 * (expected or 0.0)), f"{spent:.0f} s{about}")

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        Share(),
        console=console,
        transient=True,
    )


def _barred(total: float | None, done: float, numbers: str) -> RenderableType:
    """A bar and numbers behind it; the numbers alone where there is no total."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    if total is None:
        return Text(numbers)
    both = Table.grid(padding=(0, 1, 0, 0))
    both.add_row(ProgressBar(total=total, completed=done, width=24), Text(numbers))
    return both


def line(event: Event) -> str:
    """An event as a line of text."""
    if isinstance(event, Note):
        return event.text
    if isinstance(event, Found):
        return _found(event)
    if isinstance(event, RevisionStarted):
        return f"{event.revision} ({event.number} of {event.of})"
    if isinstance(event, FileStarted):
        return f"  {event.revision}/{event.file}"
    if isinstance(event, RevisionApplied):
        return f"{event.revision}: {event.seconds:.2f} s"
    raise TypeError(f"unknown event {event!r}")


def _found(event: Found) -> str:
    if event.release is None:
        return "There is no schema pgflow here: it is installed from the beginning."
    source = "recorded" if event.recorded else "by its catalogue; its revisions are recorded from now on"
    return f"Found {event.release} ({source})."
