"""Progress on stderr: lines, and on a terminal a bar with what runs now and how long it may take."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pgflow_migrate.cli import output
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
    from rich.console import Console
    from rich.progress import Progress, Task

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
                console.print(line(event), markup=False, soft_wrap=True)

        yield log
        return
    seconds = expected()
    with _bar(console) as bar:
        task = bar.add_task("Connecting", expected=None)

        def listen(event: Event) -> None:
            if isinstance(event, (RevisionStarted, FileStarted)):
                bar.update(task, description=line(event).strip(), refresh=True)
            elif not isinstance(event, FileDone):
                console.print(line(event), markup=False, soft_wrap=True)
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


def _bar(console: Console) -> Progress:
    """A line that goes away: a spinner, what is done, the share of the expected time, the time."""
    from rich.progress import Progress, ProgressColumn, SpinnerColumn, TextColumn
    from rich.progress_bar import ProgressBar
    from rich.text import Text

    class Share(ProgressColumn):
        """Of the expected time; it stays short of full, because it is an estimate."""

        def render(self, task: Task) -> ProgressBar | Text:
            expected = task.fields["expected"]
            if expected is None:
                return Text("")
            return ProgressBar(total=expected, completed=min(task.elapsed or 0.0, 0.97 * expected), width=24)

    class Spent(ProgressColumn):
        """Seconds, and how many are expected."""

        def render(self, task: Task) -> Text:
            expected = task.fields["expected"]
            about = "" if expected is None else f" of about {expected:.0f} s"
            return Text(f"{task.elapsed or 0:.0f} s{about}")

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        Share(),
        Spent(),
        console=console,
        transient=True,
    )


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
