"""What commands print: one JSON document or a table on stdout, everything else on stderr.

All of it goes through here, because an output may be closed or full. On stdout or a file that is an error; on
stderr it is passed over in silence: progress must not end an upgrade, and there is nobody left to tell.
A reader of stdout who has gone away (``| head``) has seen enough: a command that only looks ends without a
word, one that has changed something (:func:`remember_change`) says so on stderr.
With ``--log-format json`` what goes to stderr is a JSON object a line, see :func:`log`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Iterator
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from pgflow_migrate import layout
from pgflow_migrate.errors import PgflowMigrateError

if TYPE_CHECKING:
    from rich.console import Console

_FORMAT = "pgflow_migrate.format"
_FILE = "pgflow_migrate.file"
_FOR_PEOPLE = ("table", "markdown")
_CHANGED = "pgflow_migrate.changed"


def remember_format(ctx: click.Context, value: str) -> None:
    """Note the chosen ``--format``, so that an error is shown in it too.

    What is for programs is UTF-8, whatever the locale: each of these formats says so of itself.
    """
    ctx.meta[_FORMAT] = value
    stdout: Any = sys.stdout
    if value not in _FOR_PEOPLE and stdout is not None and not stdout.isatty():
        with contextlib.suppress(AttributeError):
            stdout.reconfigure(encoding="utf-8")


def remember_file(ctx: click.Context, path: Path) -> None:
    """Note that the result goes into a file, so that an error goes there: nobody is to read an old one."""
    ctx.meta[_FILE] = path


@contextlib.contextmanager
def chosen_file(ctx: click.Context) -> Iterator[TextIO | None]:
    """The file of :func:`remember_file`, opened; None for stdout."""
    path: Path | None = ctx.meta.get(_FILE)
    with contextlib.ExitStack() as stack:
        file = None
        if path is not None:
            with contextlib.suppress(OSError):
                file = stack.enter_context(path.open("w", encoding="utf-8"))
        yield file


def chosen_format(ctx: click.Context) -> str | None:
    """The ``--format`` of the command that runs, or None before it is known."""
    value: str | None = ctx.meta.get(_FORMAT)
    return value


def remember_change(ctx: click.Context) -> None:
    """Note that the command has done more than look, which is to be known whoever reads its output."""
    ctx.meta[_CHANGED] = True


def has_changed(ctx: click.Context) -> bool:
    """Whether :func:`remember_change` was called."""
    return bool(ctx.meta.get(_CHANGED))


_stderr_is_json = False  # of the process, because a worker's threads log, too, and have no click context


@contextlib.contextmanager
def stderr_as(log_format: str) -> Iterator[None]:
    """Within it stderr is ``text`` for people, or ``json`` for programs: an object a line."""
    global _stderr_is_json
    before, _stderr_is_json = _stderr_is_json, log_format == "json"
    try:
        yield
    finally:
        _stderr_is_json = before


def stderr_is_json() -> bool:
    """Whether ``--log-format json`` is in force."""
    return _stderr_is_json


def log(level: str, event: str, **more: Any) -> None:
    """Write one line of ``--log-format json``: time (ISO 8601, UTC), level, event, and what else is given.

    Args:
        level: ``debug``, ``info``, ``warning`` or ``error``.
        event: what happened, in words.
        more: of the same event, see :func:`plain`.
    """
    at = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    line = json.dumps(plain({"time": at, "level": level, "event": event, **more}), ensure_ascii=False)
    click.echo(line, file=_Output(sys.stderr, required=False), color=False)  # type: ignore[arg-type]


class OutputError(PgflowMigrateError):
    """What should have been printed could not be written."""


class ReaderGoneError(OutputError):
    """Nobody reads the output any more."""


class _Output:
    """A stream for click and rich. They never see its failures, which each of them handles its own way."""

    def __init__(self, stream: TextIO | None, *, required: bool) -> None:
        self._stream = stream  # None: the process was started with it closed
        self._required = required
        self.encoding = getattr(stream, "encoding", None) or "utf-8"

    def write(self, text: str) -> int:
        with self._failures():
            if self._stream is None:
                raise OSError("it is closed")
            try:
                self._stream.write(text)
            except UnicodeEncodeError:  # of which nothing has been written
                self._stream.write(escaped(text, self.encoding))
        return len(text)

    def flush(self) -> None:
        with self._failures():
            if self._stream is not None:
                self._stream.flush()

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("it is closed")
        return self._stream.fileno()

    @contextlib.contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            _discard(self._stream)
            if self._required:
                kind = ReaderGoneError if isinstance(error, BrokenPipeError) else OutputError
                raise kind(
                    f"The output could not be written: {error.strerror or error}.",
                    "Whatever else the command did is done.",
                ) from error


def escaped(text: str, encoding: str) -> str:
    """``text`` with what ``encoding`` lacks, and bytes of file names that are no text, as ``\\u20ac``.

    As JSON writes it, so that a document stays one.
    """

    def escape(character: str) -> str:
        try:
            character.encode(encoding)
        except UnicodeEncodeError:
            return json.dumps(character)[1:-1]
        return character

    return "".join(map(escape, text))


class _Lines(_Output):
    """stderr where it is JSON: each line that somebody writes becomes an event."""

    def __init__(self, stream: TextIO | None) -> None:
        super().__init__(stream, required=False)
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            if event := click.unstyle(line).strip():
                log("info", event)
        return len(text)

    def isatty(self) -> bool:
        return False


def _discard(stream: TextIO | None) -> None:
    """Let what is still buffered go nowhere, because Python would fail on it once more when it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        if stream is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def _output(*, stderr: bool = False, file: TextIO | None = None) -> TextIO:
    stream = file if file is not None else sys.stderr if stderr else sys.stdout
    output: Any = _Output(stream, required=not stderr)
    if stderr and file is None and _stderr_is_json:
        output = _Lines(stream)
    return output  # type: ignore[no-any-return]


def echo(
    text: str, *, err: bool = False, nl: bool = True, file: TextIO | None = None, level: str = "info"
) -> None:
    """Print a text on stdout, on stderr or into a file.

    Args:
        text: what.
        err: on stderr; as one event where that is JSON.
        nl: whether a newline follows.
        file: where to, instead.
        level: of the event, see :func:`log`.

    Raises:
        OutputError: stdout or the file is closed or full.
    """
    if err and file is None and _stderr_is_json:
        log(level, click.unstyle(text).strip())
        return
    click.echo(text, nl=nl, file=_output(stderr=err, file=file), color=colour() if err else None)


def print_json(document: Any, file: TextIO | None = None) -> None:
    """Print one JSON document on stdout or into a file, of anything that :func:`plain` takes."""
    echo(json.dumps(plain(document), indent=2, ensure_ascii=False), file=file)


def print_rows(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns; a row without a name belongs to the one before."""
    for line in row_lines(rows):
        echo(line)


def row_lines(rows: Iterable[tuple[str, str]]) -> list[str]:
    """What :func:`print_rows` prints."""
    rows = list(rows)
    column = max(len(name) for name, _ in rows)
    done = []
    for name, value in rows:
        heading = f"{name:<{column}}  "
        for number, line in enumerate(layout.lines(value, width(), " " * len(heading))):
            done.append((line if number else heading + line[len(heading) :]).rstrip())
    return done


def plain(value: Any) -> Any:
    """``value`` in JSON's own types: dataclasses as objects, dates in ISO 8601, durations in seconds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def width(*, stderr: bool = False) -> int | None:
    """The width to wrap lines at; None where nobody watches, see :func:`pgflow_migrate.layout.width_of`."""
    if not _output(stderr=stderr).isatty():
        return None
    return layout.width_of(console(stderr=stderr))


def is_terminal() -> bool:
    """Whether stdout is a terminal that can be drawn on."""
    return _output().isatty() and os.environ.get("TERM") != "dumb"


def colour() -> bool | None:
    """For click: False when NO_COLOR is set, else None, which means colour on a terminal only."""
    return False if os.environ.get("NO_COLOR") else None


def console(*, stderr: bool = False, file: TextIO | None = None) -> Console:
    """A rich console; it has colours on a terminal only, and never with NO_COLOR."""
    from rich.console import Console

    # FORCE_COLOR would bring a spinner's control characters into JSON, and colours into a file.
    terminal = False if file is not None or (stderr and _stderr_is_json) else None
    return Console(
        file=_output(stderr=stderr, file=file), highlight=False, soft_wrap=False, force_terminal=terminal
    )
