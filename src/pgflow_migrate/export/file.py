"""The file: gzip'd JSON lines, written and read as a stream.

A header; then sections, each a line that describes it, a line for each row, and a line with their number;
then a line that says that this is the end. A file that was cut off or damaged is never taken for a whole one.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import re
import stat
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from pgflow_migrate.errors import EXIT_USAGE, PgflowMigrateError
from pgflow_migrate.export.document import FORMAT, VERSION, Header, Queue, Row, Section, Table, storable
from pgflow_migrate.releases import catalogue

_MAGIC = b"\x1f\x8b"
_BUFFER = 1 << 16

# Bytes of a row's line: PostgreSQL writes and reads no row of more than 1 GB.
_LONGEST = 1 << 30
# Bytes of any other line, and of what a JSON parser is given: it can take 25 times their memory.
_SHORT = 1 << 22

_DECODER = json.JSONDecoder()
_OPEN = re.compile(r"[ \t]*\[[ \t]*")
_NEXT = re.compile(r"[ \t]*(?:,[ \t]*|(\])[ \t\r\n]*\Z)")

# Made once: json.dumps would make one for each row.
_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


class ExportFileError(PgflowMigrateError):
    """A file is not an export, is one of a newer format, or is not whole."""


class ExportExistsError(PgflowMigrateError):
    """The file that was to be written is there already, or what is there is no file."""

    exit_code = EXIT_USAGE


class Writer:
    """Writes an export beside its place, and puts it there when it is whole.

    The file can be read by its owner alone: it holds what the database held.
    """

    def __init__(self, path: Path, header: Header, *, force: bool = False) -> None:
        """Begin a file.

        Args:
            path: where it is to be.
            header: its first line.
            force: whether it may replace a file.

        Raises:
            ExportExistsError: there is one, and it may not; or there is something else.
            PgflowMigrateError: the folder cannot be written to.
        """
        self._path = path
        self._force = force
        self._place = destination(path, force=force)
        # A name may have 255 bytes, and a character four.
        prefix = f".{self._place.name[:50]}."
        try:
            descriptor, name = tempfile.mkstemp(dir=self._place.parent, prefix=prefix, suffix=".partial")
        except OSError as error:
            raise cannot_write(path, error) from error
        self._partial = Path(name)
        self._raw = os.fdopen(descriptor, "wb")
        # Without name and time: the same copy is the same file.
        compressed = gzip.GzipFile("", "wb", compresslevel=6, fileobj=self._raw, mtime=0)
        self._file = io.BufferedWriter(cast(io.RawIOBase, compressed), _BUFFER)
        self._sections = self._rows = 0
        self._table = ""
        self._line(header.to_json(), "The header")

    def begin(self, section: Section) -> None:
        """Begin a section."""
        self._sections += 1
        self._rows = 0
        self._table = f"{section.schema}.{section.name}"
        self._line(section.to_json(), f"The description of {self._table}")

    def row(self, values: Row) -> None:
        """Write a row of the section."""
        self._rows += 1
        self._line(values, f"A row of {self._table}", _LONGEST)

    def end_section(self) -> int:
        """End it; returns the number of its rows."""
        self._line({"rows": self._rows}, "The end")
        return self._rows

    def finish(self) -> int:
        """End the file, and put it in its place; returns its bytes."""
        self._line({"end": self._sections}, "The end")
        self._file.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._raw.close()
        destination(self._path, force=self._force)  # what came in the meantime
        size = self._partial.stat().st_size
        self._partial.replace(self._place)
        return size

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        # Also what is still buffered, on a disk that is full perhaps: the file goes away all the same.
        for file in (self._file, self._raw):
            with contextlib.suppress(OSError, ValueError):
                file.close()
        self._partial.unlink(missing_ok=True)

    def _line(self, value: Any, what: str, most: int = _SHORT) -> None:
        line = _encode(value).encode() + b"\n"
        if len(line) > most:
            raise PgflowMigrateError(
                f"{what} takes {len(line):,} bytes in the file, where a line may have {most:,}.",
                "Make it shorter in the database, and export again.",
            )
        self._file.write(line)


class Reader:
    """Reads an export; use it as a context manager.

    Attributes:
        path: the file.
        size: its bytes.
        header: its first line.
    """

    def __init__(self, path: Path) -> None:
        """Open a file and read its header.

        Raises:
            ExportFileError: it is not there, not an export, damaged, or one of a newer format or release.
        """
        self.path = path
        self._number = 0
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
                raise OSError("it is no regular file")  # one could wait for a pipe for ever
            self.size = found.st_size
            with path.open("rb") as file:
                magic = file.read(2)
            if magic != _MAGIC:
                raise self._foreign()
            self._compressed = path.open("rb")
            self._file = gzip.GzipFile(fileobj=self._compressed)
        except OSError as error:
            raise ExportFileError(
                f"{path} cannot be read: {error.strerror or error}.", "Name a file that export has written."
            ) from error
        try:
            self.header = self._header()
        except BaseException:
            self._close()
            raise

    @property
    def position(self) -> int:
        """How many of the file's bytes have been read, or a little more: it is read in blocks."""
        return min(self._compressed.tell(), self.size)

    def sections(self) -> Iterator[tuple[Section, Iterator[Row]]]:
        """Each section with its rows, which have to be read before the next.

        Raises:
            ExportFileError: the file is cut off or damaged.
        """
        count = 0
        while True:
            line = self._line()
            if isinstance(line, dict) and "end" in line:
                if line["end"] != count:
                    raise self._damaged()
                self._nothing_follows()
                return
            count += 1
            section = self._section(line)
            yield section, self._rows(section)

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._file.close()
        self._compressed.close()

    def _header(self) -> Header:
        # The first block may hold all that there is: a file that is damaged there is no export to anyone.
        try:
            line = _parsed(self._file.readline(_SHORT + 1), None)
        except (OSError, EOFError, zlib.error, ValueError, RecursionError) as error:
            raise self._foreign() from error
        self._number = 1
        if not isinstance(line, dict) or line.get("format") != FORMAT:
            raise self._foreign()
        version = line.get("version")
        if type(version) is not int or version < 1:
            raise self._damaged()
        if version > VERSION:
            raise ExportFileError(
                f"{self.path} has format {version}; this pgflow-migrate reads up to format {VERSION}.",
                "Upgrade pgflow-migrate.",
            )
        try:
            header = Header.from_json(line)
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged() from error
        known = catalogue.releases()
        if header.closest not in known:
            raise ExportFileError(
                f"{self.path} is of release {header.closest}, which this pgflow-migrate does not know.",
                "Upgrade pgflow-migrate.",
            )
        if header.release in known and header.release != header.closest:
            raise self._damaged()
        return header

    def _section(self, line: Any) -> Section:
        try:
            return Table.from_json(line["table"]) if "table" in line else Queue.from_json(line["queue"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged() from error

    def _rows(self, section: Section) -> Iterator[Row]:
        width = len(section.columns)
        count = 0
        while True:
            line = self._line(width)
            if isinstance(line, dict):
                if line != {"rows": count}:
                    raise self._damaged()
                return
            count += 1
            if not isinstance(line, list) or len(line) != width:
                raise self._damaged()
            if not all(value is None or (isinstance(value, str) and storable(value)) for value in line):
                raise self._damaged()
            yield line

    def _line(self, width: int | None = None) -> Any:
        """The next line's value; of ``width``, where rows are, a row may be longer than other lines."""
        self._number += 1
        try:
            text = self._file.readline((_SHORT if width is None else _LONGEST) + 1)
            if text:
                return _parsed(text, width)
        except EOFError:
            pass
        except (OSError, zlib.error, ValueError, RecursionError) as error:
            raise self._damaged() from error
        except MemoryError as error:
            raise ExportFileError(
                f"{self.path} has a line {self._number} that is too long for this machine's memory.",
                "Replay it on a machine with more.",
            ) from error
        raise ExportFileError(
            f"{self.path} is cut off: it ends after line {self._number - 1}.",
            "Copy it again, or export again.",
        )

    def _nothing_follows(self) -> None:
        try:
            if not self._file.read(1):
                return
        except EOFError:
            pass
        except (OSError, zlib.error) as error:
            raise self._damaged() from error
        raise self._damaged()

    def _foreign(self) -> ExportFileError:
        return ExportFileError(
            f"{self.path} is not an export of pgflow-migrate.",
            "Write one: pgflow-migrate export --dsn … FILE.",
        )

    def _damaged(self) -> ExportFileError:
        return ExportFileError(
            f"{self.path} is damaged at line {self._number}.", "Copy it again, or export again."
        )


def _parsed(line: bytes, width: int | None) -> Any:
    """The value of a line.

    A long one can only be a row of ``width`` values: lists of lists would take many times its memory.

    Raises:
        ValueError, RecursionError: it has none.
    """
    text = line.decode()
    if len(line) <= _SHORT:
        return json.loads(text)
    start = _OPEN.match(text)
    if width is None or len(line) > _LONGEST or start is None:
        raise ValueError(len(line))
    row: Row = []
    position = start.end()
    while len(row) < width and text.startswith(('"', "n"), position):
        value, position = _DECODER.raw_decode(text, position)
        row.append(value)
        follows = _NEXT.match(text, position)
        if follows is None:
            break
        if follows[1]:
            return row
        position = follows.end()
    raise ValueError(len(line))


def destination(path: Path, *, force: bool) -> Path:
    """Where a file of that name is put: what a symbolic link leads to stays there, and so does the link.

    Raises:
        ExportExistsError: there is a file, and it may not be replaced; or a pipe, a device, a dead link.
        PgflowMigrateError: there is no looking at it.
    """
    try:
        path.lstat()
    except FileNotFoundError:
        return path
    except OSError as error:
        raise cannot_write(path, error) from error
    try:
        regular = stat.S_ISREG(path.stat().st_mode)
        found = Path(os.path.realpath(path, strict=True)) if regular and path.is_symlink() else path
    except PermissionError as error:
        raise cannot_write(path, error) from error
    except OSError as error:
        raise ExportExistsError(f"{path} is a link that leads nowhere.", "Name another file.") from error
    if not regular:
        raise ExportExistsError(f"{path} is no regular file.", "Name another file.")
    if not force:
        raise ExportExistsError(f"{path} exists.", "Name another file, or add --force to replace it.")
    return found


def cannot_write(path: Path, error: OSError) -> PgflowMigrateError:
    """The error for a file that cannot be written."""
    return PgflowMigrateError(
        f"{path} cannot be written: {error.strerror or error}.", "Name a file in a folder with room for it."
    )
