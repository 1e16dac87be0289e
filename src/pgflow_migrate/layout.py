"""Text for people: plurals, and lines that break between words, leave SQL whole and drive no terminal."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""

# A statement to copy: after a colon, another statement, or nothing; up to its semicolon.
_STATEMENT = re.compile(
    r"(?:(?<=: )|(?<=; )|^)"
    r"(?:alter|create|delete|drop|grant|insert|select|set|update|with) "
    rf"""(?:{_QUOTED}|[^;'"])*;"""
)
# Controls, and what terminals, XML or a reader's eye do not take: surrogates, non-characters, and what shows
# nothing or turns the direction of the line.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    "\ufffe\uffff\U000e0000-\U000e0fff]"
)
_SQL_WORD = re.compile(rf"""(?:{_QUOTED}|\S)+""")


def plural(number: int, one: str, several: str = "") -> str:
    """``1 flow`` or ``2 flows``; ``several`` where an s does not make it."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def printable(text: str) -> str:
    """``text`` with what does not show, or drives a terminal, written out, such as ``\\n`` or ``\\x1b``.

    Slugs, names and reasons are arbitrary text, and so is what a server or somebody's file says.
    """
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)


def width_of(console: Console) -> int | None:
    """The width to wrap at, a terminal's; None in a pipe or a file, where lines are left whole for grep."""
    return console.width if console.is_terminal else None


def lines(text: str, width: int | None, indent: str = "") -> list[str]:
    """``text``, as :func:`printable` has it, as lines of at most ``width`` cells, each behind ``indent``.

    A statement that fits on a line of its own is not broken, and no word ever is: one that is too long for a
    line is left so.
    """
    text = printable(text)
    if width is None:
        return [indent + text]
    from rich.cells import cell_len  # here, so that what is not wrapped need not wait for the import

    room = max(width - len(indent), 1)
    done: list[str] = []
    line: str | None = None
    for unit in _units(text, room):
        if line is None:
            line = unit
        elif cell_len(line) + 1 + cell_len(unit) <= room:
            line += f" {unit}"
        else:
            done.append(line)
            line = unit
    return [(indent + part).rstrip() for part in [*done, line or ""]]


def show(console: Console, text: str, *, style: str = "", indent: str = "") -> None:
    """Print ``text``, wrapped, without reading markup in it."""
    for line in lines(text, width_of(console), indent):
        console.print(line, style=style or None, markup=False, emoji=False, soft_wrap=True)


def show_broken(console: Console, name: str, *texts: str) -> None:
    """Print what does not hold: its name, what was found and what to do below it, and a blank line."""
    from rich.text import Text

    console.print(Text.assemble(("broken  ", "bold red"), (printable(name), "bold")), soft_wrap=True)
    for text in texts:
        show(console, text, indent="  ")
    console.print()


def show_table(console: Console, table: Table) -> None:
    """Print a table without the blanks that fill its last column, and as wide as it is where nobody looks."""
    from rich.segment import Segment, Segments

    options = console.options if console.is_terminal else console.options.update(width=10_000)
    for line in console.render_lines(table, options, pad=False):
        while line and not line[-1].text.strip():
            line.pop()
        if line:
            line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
        console.print(Segments([*line, Segment.line()]), soft_wrap=True)


def parts(text: str) -> Iterator[tuple[bool, str]]:
    """``text`` cut where statements to copy begin and end: whether a part is statements, and the part.

    Statements that follow each other stay together, a line each.
    """
    end = 0
    statements: list[str] = []
    for found in _STATEMENT.finditer(text):
        if between := text[end : found.start()].strip(" "):
            if statements:
                yield True, "\n".join(statements)
                statements.clear()
            yield False, between
        statements.append(found[0])
        end = found.end()
    if statements:
        yield True, "\n".join(statements)
    if rest := text[end:].strip(" "):
        yield False, rest


def _units(text: str, room: int) -> Iterator[str]:
    """What is not broken: statements that fit, else words."""
    from rich.cells import cell_len

    end = 0
    for statement in _STATEMENT.finditer(text):
        yield from _words(text[end : statement.start()])
        if cell_len(statement[0]) <= room:
            yield statement[0]
        else:
            yield from _SQL_WORD.findall(statement[0])
        end = statement.end()
    yield from _words(text[end:])


def _words(text: str) -> list[str]:
    return text.strip(" ").split(" ") if text.strip(" ") else []
