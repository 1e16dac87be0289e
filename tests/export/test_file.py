"""Files that are no whole export, each with its sentence."""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import os
import resource
import signal
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.export import file as file_module
from pgflow_migrate.export.document import Column, Header, Index, Pgmq, Queue, Row, Section, Sequence, Table
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


QUEUE = Queue(
    queue="orders",
    part="queue",
    unlogged=False,
    member=True,
    attributes=(Column("msg_id", "bigint", True, "always"), Column("read_ct", "integer", default="0")),
    indexes=(Index("q_orders_pkey", ("msg_id",), True, True),),
    sequence=Sequence("q_orders_msg_id_seq", 7, True, False),
)


def as_line(value: object) -> bytes:
    return json.dumps(value).encode() + b"\n"


def test_what_describes_a_queue_is_read_as_it_was_written(tmp_path: Path) -> None:
    with Writer(tmp_path / "file", HEADER) as writer:
        writer.begin(QUEUE)
        writer.end_section()
        writer.finish()
    assert read(tmp_path / "file") == [(QUEUE, [])]


def paths(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Of every value within a document."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [path, *(found for key, item in items for found in paths(item, (*path, key)))]
    return [path]


def replaced(value: Any, path: tuple[str | int, ...], new: object) -> Any:
    """A copy with another value at a path."""
    if not path:
        return new
    copied = json.loads(json.dumps(value))
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return copied


WRONG: tuple[object, ...] = (None, 5, 1.5, True, "five\0", "\ud800", [], ["one", 5], {}, {"a": 1})


@pytest.mark.parametrize("part", [HEADER, FLOWS, QUEUE], ids=["header", "table", "queue"])
def test_a_description_with_a_value_of_another_type_is_damage_or_means_that(
    part: Header | Table | Queue, tmp_path: Path
) -> None:
    """Whatever is put in the place of any value: a description of the same types, or a sentence."""
    path = tmp_path / "file"
    whole = json.loads(json.dumps(part.to_json()))
    number = 1 if part is HEADER else 2
    before = b"" if part is HEADER else as_line(HEADER.to_json())
    after = b'{"end":0}\n' if part is HEADER else b'{"rows":0}\n{"end":1}\n'
    told = []
    for place, wrong in itertools.product(paths(whole), WRONG):
        changed = replaced(whole, place, wrong)
        path.write_bytes(gzip.compress(before + as_line(changed) + after))
        try:
            with Reader(path) as reader:
                found = [(section, list(rows)) for section, rows in reader.sections()]
        except ExportFileError as error:
            told.append(error.message.removeprefix(f"{path} "))
            continue
        read_as: Header | Section = reader.header if part is HEADER else found[0][0]
        assert json.loads(json.dumps(read_as.to_json())) == changed
    assert len(told) > len(paths(whole)) * 5
    assert set(told) - {f"is damaged at line {number}."} == (
        {
            "is not an export of pgflow-migrate.",
            "has format 5; this pgflow-migrate reads up to format 1.",
        }
        if part is HEADER
        else set()
    )


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("closest", "../../../../../tmp/evil", "is damaged at line 1."),
        ("closest", "0.16.0\x1b[2J", "is damaged at line 1."),
        ("closest", "", "is damaged at line 1."),
        ("closest", "0.99.0", "is of release 0.99.0, which this pgflow-migrate does not know."),
        ("release", "0.15.0", "is damaged at line 1."),
        ("release", "../0.16.0", "is damaged at line 1."),
        ("version", True, "is damaged at line 1."),
        ("version", 0, "is damaged at line 1."),
        ("pgmq", {"version": "1", "form": "magic", "last_read_at": True}, "is damaged at line 1."),
    ],
)
def test_a_header_with_a_value_that_cannot_be_is_told(
    field: str, value: object, told: str, file: Path
) -> None:
    header, *rest = lines(file)
    changed = as_line({**json.loads(header), field: value})
    file.write_bytes(gzip.compress(changed + b"".join(rest)))
    with pytest.raises(ExportFileError) as caught:
        Reader(file)
    assert caught.value.message == f"{file} {told}"


@pytest.mark.parametrize("value", [r"\ud800", r"\udfff", r"\u0000"])
def test_a_text_that_postgresql_cannot_hold_is_damage(value: str, file: Path) -> None:
    changed = lines(file)
    changed[2] = f'["{value}",null]\n'.encode()
    file.write_bytes(gzip.compress(b"".join(changed)))
    with pytest.raises(ExportFileError, match="is damaged at line 3"):
        read(file)


def test_what_is_no_utf_8_is_damage(file: Path) -> None:
    changed = lines(file)
    changed[2] = b'["\xed\xa0\x80",null]\n'
    file.write_bytes(gzip.compress(b"".join(changed)))
    with pytest.raises(ExportFileError, match="is damaged at line 3"):
        read(file)


def test_pairs_of_surrogates_are_characters(file: Path) -> None:
    changed = lines(file)
    changed[2] = rb'["\ud83d\ude00 \u00fc \\u0000", null]' + b"\n"
    file.write_bytes(gzip.compress(b"".join(changed)))
    assert read(file)[0][1][0] == ["\U0001f600 ü \\u0000", None]


@pytest.mark.parametrize(
    ("line", "told"), [(1, "is not an export"), (2, "is damaged at line 2"), (3, "is damaged at line 3")]
)
@pytest.mark.parametrize("opening", [b"[", b'{"table":'])
def test_lists_in_lists_without_end_are_told(line: int, told: str, opening: bytes, file: Path) -> None:
    changed = lines(file)
    changed[line - 1] = opening * 200_000 + b"\n"
    file.write_bytes(gzip.compress(b"".join(changed)))
    with pytest.raises(ExportFileError, match=told):
        read(file)


def bomb(path: Path, before: list[bytes], start: bytes, filling: bytes, end: bytes) -> None:
    """A small file with a line of 48 MB."""
    compress = zlib.compressobj(9, wbits=31)
    with path.open("wb") as file:
        file.write(compress.compress(b"".join(before) + start))
        for _ in range(48):
            file.write(compress.compress(filling * ((1 << 20) // len(filling))))
        file.write(compress.compress(end))
        file.write(compress.flush())
    assert path.stat().st_size < 500_000


@pytest.mark.parametrize(
    ("line", "start", "filling", "end", "told"),
    [
        (1, b'{"format":"', b"a", b'"}\n', "is not an export"),
        (2, b'{"table":{"schema":"', b"a", b'","name":"a","columns":[]}}\n', "is damaged at line 2"),
        (2, b'{"table":[', b"[],", b"0]}\n", "is damaged at line 2"),
    ],
)
def test_a_description_is_not_read_beyond_what_one_can_be(
    line: int, start: bytes, filling: bytes, end: bytes, told: str, file: Path, tmp_path: Path
) -> None:
    bomb(tmp_path / "bomb", lines(file)[: line - 1], start, filling, end)
    tracemalloc.start()
    try:
        with pytest.raises(ExportFileError, match=told):
            read(tmp_path / "bomb")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30_000_000


@pytest.mark.parametrize("filling", [b"[],", b'"a",', b"{},"])
def test_a_row_takes_no_more_memory_than_its_columns_need(filling: bytes, file: Path, tmp_path: Path) -> None:
    """The line itself is held, and once more as text; but not millions of values."""
    bomb(tmp_path / "bomb", lines(file)[:2], b'["one",null,', filling, b"null]\n")
    tracemalloc.start()
    try:
        with pytest.raises(ExportFileError, match="is damaged at line 3"):
            read(tmp_path / "bomb")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 200_000_000


@pytest.mark.parametrize(
    "row",
    [
        ['ü\U0001f600"\\\n\x01' * 400_000, None],
        [None, "long " * 1_000_000],
        ["[" * 5_000_000, "null"],
    ],
)
@pytest.mark.parametrize("dumps", [json.JSONEncoder(ensure_ascii=False).encode, json.dumps])
def test_a_long_row_is_read_whoever_wrote_it(row: Row, dumps: Callable[[Any], str], file: Path) -> None:
    changed = lines(file)
    changed[2] = dumps(row).encode() + b" \n"
    assert len(changed[2]) > 1 << 22
    file.write_bytes(gzip.compress(b"".join(changed), 1))
    assert read(file)[0][1] == [row, *ROWS[1:]]


@pytest.mark.parametrize("end", [b"", b"]", b",null", b",null,null]", b',"', b",[]]", b",null]]", b",nil]"])
def test_a_long_row_that_is_not_whole_is_damage(end: bytes, file: Path) -> None:
    changed = lines(file)
    changed[2] = b'["' + b"a" * (1 << 22) + b'"' + end + b"\n"
    file.write_bytes(gzip.compress(b"".join(changed), 1))
    with pytest.raises(ExportFileError, match="is damaged at line 3"):
        read(file)


LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
from pgflow_migrate.export import ExportFileError, Reader

pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + 40_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    with Reader(Path(sys.argv[1])) as reader:
        for section, rows in reader.sections():
            list(rows)
except ExportFileError as error:
    print(error.message, error.remedy, sep="\\n")
"""


def test_a_row_that_does_not_fit_into_memory_is_told(file: Path, tmp_path: Path) -> None:
    bomb(tmp_path / "bomb", lines(file)[:2], b'["', b"a", b'",null]\n')
    done = subprocess.run(
        [sys.executable, "-c", LITTLE_MEMORY, str(tmp_path / "bomb")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        f"{tmp_path / 'bomb'} has a line 3 that is too long for this machine's memory.",
        "Replay it on a machine with more.",
    ]


def test_a_line_that_no_reader_would_take_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gigabyte would take long; a limit that is lower is the same one."""
    monkeypatch.setattr(file_module, "_LONGEST", 100_000)
    with Writer(tmp_path / "file", HEADER) as writer:
        writer.begin(FLOWS)
        writer.row(["a" * 99_000, None])
        with pytest.raises(PgflowMigrateError) as caught:
            writer.row(["a" * 100_000, None])
    assert caught.value.message == (
        "A row of pgflow.flows takes 100,010 bytes in the file, where a line may have 100,000."
    )
    assert caught.value.remedy == "Make it shorter in the database, and export again."
    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    keeping = os.open(tmp_path / "pipe", os.O_RDWR)  # so that an open ends at all
    os.write(keeping, b"no")
    try:
        with pytest.raises(ExportFileError) as caught:
            Reader(tmp_path / "pipe")
    finally:
        os.close(keeping)
    assert caught.value.message == f"{tmp_path / 'pipe'} cannot be read: it is no regular file."
