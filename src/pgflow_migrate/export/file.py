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
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from pgflow_migrate.errors import EXIT_USAGE, PgflowMigrateError
from pgflow_migrate.export.document import FORMAT, VERSION, Header, Queue, Row, Section, Table

_MAGIC = b"\x1f\x8b"
_BUFFER = 1 << 16

# Made once: json.dumps would make one for each row.
_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


class ExportFileError(PgflowMigrateError):
    """A file is not an export, is one of a newer format, or is not whole."""


class ExportExistsError(PgflowMigrateError):
    """The file that was to be written is there already."""

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
            ExportExistsError: there is one, and it may not.
            PgflowMigrateError: the folder cannot be written to.
        """
        self._path = path
        self._force = force
        self._refuse_existing()
        try:
            descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
        except OSError as error:
            raise cannot_write(path, error) from error
        self._partial = Path(name)
        self._raw = os.fdopen(descriptor, "wb")
        # Without name and time: the same copy is the same file.
        compressed = gzip.GzipFile("", "wb", compresslevel=6, fileobj=self._raw, mtime=0)
        self._file = io.BufferedWriter(cast(io.RawIOBase, compressed), _BUFFER)
        self._sections = self._rows = 0
        self._line(header.to_json())

    def begin(self, section: Section) -> None:
        """Begin a section."""
        self._sections += 1
        self._rows = 0
        self._line(section.to_json())

    def row(self, values: Row) -> None:
        """Write a row of the section."""
        self._rows += 1
        self._line(values)

    def end_section(self) -> int:
        """End it; returns the number of its rows."""
        self._line({"rows": self._rows})
        return self._rows

    def finish(self) -> int:
        """End the file, and put it in its place; returns its bytes."""
        self._line({"end": self._sections})
        self._file.close()
        self._raw.flush()
        os.fsync(self._raw.fileno())
        self._raw.close()
        self._refuse_existing()
        size = self._partial.stat().st_size
        self._partial.replace(self._path)
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

    def _line(self, value: Any) -> None:
        self._file.write(_encode(value).encode() + b"\n")

    def _refuse_existing(self) -> None:
        if self._path.exists() and not self._force:
            raise exists(self._path)


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
            ExportFileError: it is not there, not an export, or one of a newer format.
        """
        self.path = path
        self._number = 0
        try:
            self.size = path.stat().st_size
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
            line = json.loads(self._file.readline(1 << 24))
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise self._foreign() from error
        self._number = 1
        if not isinstance(line, dict) or line.get("format") != FORMAT:
            raise self._foreign()
        version = line.get("version")
        if not isinstance(version, int):
            raise self._damaged()
        if version > VERSION:
            raise ExportFileError(
                f"{self.path} has format {version}; this pgflow-migrate reads up to format {VERSION}.",
                "Upgrade pgflow-migrate.",
            )
        try:
            return Header.from_json(line)
        except (KeyError, TypeError) as error:
            raise self._damaged() from error

    def _section(self, line: Any) -> Section:
        try:
            return Table.from_json(line["table"]) if "table" in line else Queue.from_json(line["queue"])
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged() from error

    def _rows(self, section: Section) -> Iterator[Row]:
        width = len(section.columns)
        count = 0
        while True:
            line = self._line()
            if isinstance(line, dict):
                if line != {"rows": count}:
                    raise self._damaged()
                return
            count += 1
            if not isinstance(line, list) or len(line) != width:
                raise self._damaged()
            if not all(value is None or isinstance(value, str) for value in line):
                raise self._damaged()
            yield line

    def _line(self) -> Any:
        self._number += 1
        try:
            text = self._file.readline()
            if text:
                return json.loads(text)
        except EOFError:
            pass
        except (OSError, zlib.error, ValueError) as error:
            raise self._damaged() from error
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


def exists(path: Path) -> ExportExistsError:
    """The error for a file that must not be replaced."""
    return ExportExistsError(f"{path} exists.", "Name another file, or add --force to replace it.")


def cannot_write(path: Path, error: OSError) -> PgflowMigrateError:
    """The error for a file that cannot be written."""
    return PgflowMigrateError(
        f"{path} cannot be written: {error.strerror or error}.", "Name a file in a folder with room for it."
    )
