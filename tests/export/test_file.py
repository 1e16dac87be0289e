"""Files that are no whole export, each with its sentence."""

from __future__ import annotations

import gzip
import hashlib
import json
import resource
import signal
from pathlib import Path

import pytest

from pgflow_migrate.export.document import Header, Pgmq, Row, Section, Table
from pgflow_migrate.export.file import ExportFileError, Reader, Writer

HEADER = Header("0.16.0", "0.16.0", "18.1", Pgmq("1.13.0", "sql", True), "2026-01-01", False, "1", (), ())
FLOWS = Table("pgflow", "flows", ("flow_slug", "opt_timeout"))
ROWS: list[Row] = [["a\n\\N", None], ["", "60"], ["ü\u2028\x00"[:2], "1"]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with Writer(tmp_path / "file", HEADER) as writer:
        writer.begin(FLOWS)
        for row in ROWS:
            writer.row(row)
        assert writer.end_section() == 3
        writer.finish()
    return tmp_path / "file"


def read(path: Path) -> list[tuple[Section, list[Row]]]:
    with Reader(path) as reader:
        found = [(section, list(rows)) for section, rows in reader.sections()]
        assert reader.header == HEADER
        return found


def write(path: Path, rows: int) -> None:
    """A file that gzip can hardly make smaller."""
    with Writer(path, HEADER) as writer:
        writer.begin(FLOWS)
        for number in range(rows):
            writer.row([hashlib.sha256(str(number).encode()).hexdigest(), None])
        writer.end_section()
        writer.finish()


def lines(path: Path) -> list[bytes]:
    return gzip.decompress(path.read_bytes()).splitlines(keepends=True)


def test_what_was_written_is_read(file: Path) -> None:
    assert read(file) == [(FLOWS, ROWS)]


def test_the_same_rows_make_the_same_file(file: Path, tmp_path: Path) -> None:
    with Writer(tmp_path / "other", HEADER) as writer:
        writer.begin(FLOWS)
        for row in ROWS:
            writer.row(row)
        writer.end_section()
        writer.finish()
    assert (tmp_path / "other").read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    "content",
    [b"", b"PGDMP", gzip.compress(b"hello", mtime=0), gzip.compress(b'{"a": 1}\n', mtime=0)],
    ids=["empty", "a dump", "a text", "other lines"],
)
def test_a_foreign_file_is_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "dump").write_bytes(content)
    with pytest.raises(ExportFileError) as caught:
        Reader(tmp_path / "dump")
    assert caught.value.message == f"{tmp_path / 'dump'} is not an export of pgflow-migrate."
    assert caught.value.exit_code == 1


def test_a_newer_format_is_told(file: Path) -> None:
    header, *rest = lines(file)
    newer = json.dumps({**json.loads(header), "version": 2}).encode() + b"\n"
    file.write_bytes(gzip.compress(newer + b"".join(rest)))
    with pytest.raises(ExportFileError) as caught:
        Reader(file)
    assert caught.value.message == f"{file} has format 2; this pgflow-migrate reads up to format 1."
    assert caught.value.remedy == "Upgrade pgflow-migrate."


def test_a_file_that_is_cut_off_anywhere_is_never_a_whole_one(file: Path) -> None:
    whole = file.read_bytes()
    for length in range(len(whole)):
        file.write_bytes(whole[:length])
        with pytest.raises(ExportFileError, match=r"is cut off|is not an export|is damaged"):
            read(file)


def test_lines_that_are_missing_at_the_end_are_told_as_cut_off(file: Path) -> None:
    file.write_bytes(gzip.compress(b"".join(lines(file)[:-1])))
    with pytest.raises(ExportFileError, match="is cut off: it ends after line 6"):
        read(file)


@pytest.mark.parametrize(
    ("line", "content"),
    [
        (2, b'{"table":{"schema":"pgflow"}}\n'),
        (3, b'["one"]\n'),
        (4, b'["one",2]\n'),
        (5, b"nonsense\n"),
        (6, b'{"rows":2}\n'),
        (7, b'{"end":2}\n'),
        (8, b'["more"]\n'),
    ],
)
def test_a_line_that_does_not_fit_is_damage(line: int, content: bytes, file: Path) -> None:
    changed = lines(file)
    changed[line - 1 : line] = [content]
    file.write_bytes(gzip.compress(b"".join(changed)))
    with pytest.raises(ExportFileError, match=rf"is damaged at line {min(line, 7)}"):
        read(file)


def test_a_flipped_bit_anywhere_is_told_or_harmless(file: Path) -> None:
    """Some bits of gzip mean nothing: of its time stamp, and what fills the last byte of the data."""
    whole = file.read_bytes()
    told = 0
    for place in range(len(whole)):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        try:
            assert read(file) == [(FLOWS, ROWS)]
        except ExportFileError:
            told += 1
    assert told >= len(whole) - 10


def test_a_full_disk_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            write(tmp_path / "file", 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(tmp_path.iterdir()) == []
