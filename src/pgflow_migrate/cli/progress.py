"""The progress of an upgrade on stderr: lines, and on a terminal a spinner with what runs now."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

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


@contextlib.contextmanager
def shown(*, files: bool) -> Iterator[Listener]:
    """Within it, the listener shows what it hears; at its end nothing but the lines is left.

    Args:
        files: whether a log, which has no spinner, gets a line for each SQL file too.
    """
    console = output.console(stderr=True)
    if not console.is_terminal:

        def log(event: Event) -> None:
            if not isinstance(event, FileDone) and (files or not isinstance(event, FileStarted)):
                console.print(line(event), markup=False, soft_wrap=True)

        yield log
        return
    with console.status("Connecting") as spinner:

        def listen(event: Event) -> None:
            if isinstance(event, (RevisionStarted, FileStarted)):
                spinner.update(line(event))
            elif not isinstance(event, FileDone):
                console.print(line(event), markup=False, soft_wrap=True)

        yield listen


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
