"""``replay --from``: verdict and exit code, for a file's database."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as Xml

import psycopg
import pytest
from click.testing import CliRunner, Result

from pgflow_migrate import database, resources
from pgflow_migrate.cli import main
from pgflow_migrate.export import Header, export
from pgflow_migrate.export.file import Writer
from pgflow_migrate.layout import printable
from pgflow_migrate.replay import digest
from pgflow_migrate.replay.scenario import load
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server


@pytest.fixture(scope="module")
def file_of(
    server: Server, templates: Templates, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """The export of a scenario's database."""
    folder = tmp_path_factory.mktemp("exports")

    def make(name: str) -> Path:
        release, _, short = name.partition("/")
        path = folder / f"{short}.export"
        path.unlink(missing_ok=True)
        dsn = templates.clone(f"core_{release.replace('.', '_')}", "replay_original")
        try:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute(load(resources.fixtures() / name).populate.encode())
            export(dsn, path)
        finally:
            server.drop_database("replay_original")
        return path

    return make


def run(server: Server, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["replay", "--server", server.admin_dsn, *arguments])


def databases(server: Server) -> set[str]:
    with psycopg.connect(server.admin_dsn) as connection:
        return {name for (name,) in connection.execute("select datname::text from pg_database")}


def test_a_database_that_upgrades_exits_0(server: Server, file_of: Callable[[str], Path]) -> None:
    file = file_of("0.15.0/hardening")  # its repair changes statuses, which it may
    before = databases(server)
    result = run(server, "--from", str(file), "--format", "json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    (one,) = document["databases"]
    assert (one["release"], one["name"], one["outcome"]) == ("0.15.0", "hardening.export", "upgrades")
    assert one["details"] == []
    assert one["notes"][0].startswith("Rebuilt: ")
    assert document["counts"]["upgrades"] == 1
    assert result.stderr == ""
    assert databases(server) == before


def test_a_database_with_findings_is_blocked_and_exits_3(
    server: Server, file_of: Callable[[str], Path]
) -> None:
    file = file_of("0.16.0/queue_absent")
    result = run(server, "--from", str(file), "--format", "junit")
    assert result.exit_code == 3
    (suite,) = Xml.fromstring(result.stdout.encode())  # noqa: S314 - our own document
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("1", "1", "0")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert (failure.text or "").startswith("queue-absent (flow ")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"PGDMP", " is not an export of pgflow-migrate."),
        (
            gzip.compress(b'{"format": "pgflow-migrate export", "version": 9}', mtime=0),
            " has format 9; this pgflow-migrate reads up to format 1.",
        ),
    ],
)
def test_a_file_that_cannot_be_used_exits_1_before_a_server_is_asked(
    content: bytes, told: str, tmp_path: Path
) -> None:
    (tmp_path / "file").write_bytes(content)
    result = CliRunner().invoke(
        main, ["replay", "--server", "host=127.0.0.1 port=1", "--from", str(tmp_path / "file")]
    )
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {tmp_path / 'file'}{told}")


@pytest.mark.parametrize(
    ("release", "unread", "told"),
    [
        (None, (), " is of a database that matches no known release of pgflow; the closest is 0.16.0."),
        ("0.17.0", (), " is of release 0.17.0, which this pgflow-migrate does not know."),
        ("0_16_0", (), " is of release 0_16_0, which this pgflow-migrate does not know."),
        (
            "0.16.0",
            ("\x1b[2Jpgmq.meta\nAll is well.",),
            " is not a full copy: the role that exported could not read everything.",
        ),
        (
            "0.16.0",
            ("pgmq.meta: grant",),
            " is not a full copy: the role that exported could not read everything.",
        ),
    ],
)
def test_a_copy_that_is_of_no_release_or_not_full_is_told(
    release: str | None, unread: tuple[str, ...], told: str, tmp_path: Path
) -> None:
    header = Header(release, "0.16.0", "18.1", None, "2026-01-01", False, "1", (), unread)
    with Writer(tmp_path / "file", header) as writer:
        writer.finish()
    result = CliRunner().invoke(main, ["replay", "--from", str(tmp_path / "file")])
    assert result.exit_code == 1
    first, *rest = result.stderr.splitlines()
    assert first == f"error: {tmp_path / 'file'}{told}"
    assert [line.strip() for line in rest[:-1]] == [printable(text) for text in unread]


@pytest.mark.parametrize("format_", ["table", "junit", "html"])
def test_nothing_that_a_strangers_file_says_of_itself_drives_a_terminal_or_adds_a_line(
    server: Server, file_of: Callable[[str], Path], format_: str
) -> None:
    file = file_of("0.16.0/empty_flow")
    with gzip.open(file) as lines:
        first, rest = lines.readline(), lines.read()
    header = json.loads(first)
    evil, told = "18\x1b[2J\r\n1 database on here: 1 upgrades.\u202e", "18\\x1b[2J\\r\\n1 database on here"
    header |= {"server": evil, "taken_at": evil, "left_out": [evil], "written_by": evil}
    header["pgmq"]["version"] = evil
    file.write_bytes(gzip.compress(json.dumps(header).encode() + b"\n" + rest))
    result = run(server, "--from", str(file), "--format", format_)
    assert result.exit_code == 0, result.output
    assert not {"\x1b", "\r", "\u202e"} & set(result.output)
    assert not re.search(r"^\s*1 database on here", result.output, re.MULTILINE)
    for text in (f"runs on PostgreSQL {told}", f"Not in the file: {told}"):
        assert text in result.stdout
    assert result.stderr.startswith(f"{file}: pgflow 0.16.0 on PostgreSQL {told}")
    if format_ == "junit":
        Xml.fromstring(result.stdout.encode())  # noqa: S314 - our own document


def test_a_damaged_file_exits_1_and_leaves_no_database(
    server: Server, file_of: Callable[[str], Path]
) -> None:
    file = file_of("0.16.0/empty_flow")
    whole = file.read_bytes()
    before = databases(server)
    # All rows are there; the check sum says that they are wrong.
    file.write_bytes(whole[:-6] + bytes([whole[-6] ^ 0xFF]) + whole[-5:])
    result = run(server, "--from", str(file))
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "Copy it again, or export again."
    assert databases(server) == before


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--from", __file__, "--release", "0.16.0"], "--from goes with neither"),
        (["--matrix", "--server", "embedded:16"], "are named with --on"),
        (["--on", "embedded:16"], "--on goes with --matrix"),
    ],
)
def test_options_that_do_not_go_together_are_a_usage_error(arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(main, ["replay", *arguments])
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_digest_tells_what_changed(database_at: Callable[[str], str]) -> None:
    with database.connect(database_at("core_0_16_0"), autocommit=True) as connection:
        connection.execute("select pgflow.create_flow('orders'), pgflow.create_flow('mail')")
        before = digest.take(connection)
        assert digest.differences(before, digest.take(connection)) == ()
        connection.execute("update pgflow.flows set opt_timeout = 61 where flow_slug = 'mail'")
        after = digest.take(connection)
        assert digest.differences(before, after) == (
            "column pgflow.flows.(row version) changed",
            "column pgflow.flows.opt_timeout changed",
        )
        assert digest.history_differences(before, after) == ("column pgflow.flows.opt_timeout changed",)
        assert digest.history_differences(before, after, ["pgflow.flows.opt_timeout"]) == ()
        # Values that change places between two rows add up to the same without their keys.
        connection.execute("update pgflow.flows set opt_timeout = 121 - opt_timeout")
        assert "column pgflow.flows.opt_timeout changed" in digest.differences(after, digest.take(connection))
        connection.execute("select pgmq.send('mail', '{}')")
        assert digest.history_differences(after, digest.take(connection))[-2:] == (
            "column pgmq.q_mail.vt changed",
            "sequence pgmq.q_mail_msg_id_seq changed",
        )
