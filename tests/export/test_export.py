"""Writing an export: rights, one snapshot, secrets, files that exist, interruptions."""

from __future__ import annotations

import gzip
import json
import os
import stat
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator
from psycopg.conninfo import make_conninfo
from tests.as_nobody import as_nobody

from pgflow_migrate import resources
from pgflow_migrate.cli import main
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.export import Copied, Reader, export
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server

PASSWORD = "f4lKe-nburg"  # noqa: S105 - no server asks for it

POPULATE = """
select pgflow.create_flow('Orders');
select pgflow.add_step('Orders', 'load');
select pgflow.start_flow('Orders', '{"card": "4111 1111"}');
select pgmq.create('private');
"""


@pytest.fixture(scope="module")
def original(server: Server, templates: Templates) -> Iterator[str]:
    """A small database, which no test changes but for grants and rows that it takes back."""
    dsn = templates.clone("core_0_16_0", "export_original")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(POPULATE.encode())
    yield dsn
    server.drop_database("export_original")


@pytest.fixture
def grant(original: str) -> Iterator[Callable[[str], str]]:
    """Run grants, and connect as the role that has nothing else; they are taken back."""

    def run(statements: str) -> str:
        with psycopg.connect(original, autocommit=True) as connection:
            connection.execute(statements.encode())
        return make_conninfo(original, user="export_reader", password=PASSWORD)

    yield run
    with psycopg.connect(original, autocommit=True) as connection:
        connection.execute("drop owned by export_reader; drop role export_reader")


# The statements of docs/replay.md, but for the role's name.
DOCUMENT = (Path(__file__).resolve().parents[2] / "docs" / "replay.md").read_text(encoding="utf-8")
DOCUMENTED = DOCUMENT.partition("```sql\n")[2].partition("```")[0]

PGFLOW = (
    "create role export_reader login;"
    "grant usage on schema pgflow to export_reader;"
    "grant select on all tables in schema pgflow to export_reader;"
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["export", *arguments])


def text_of(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def test_the_documented_grants_are_enough_and_the_file_is_its_owners_and_holds_no_secret_of_the_connection(
    grant: Callable[[str], str], server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    result = run(
        str(file), "--dsn", grant(DOCUMENTED.replace("pgflow_export", "export_reader")), "--format", "json"
    )
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    validate(document)
    assert document["status"] == "exported"
    assert document["bytes"] == file.stat().st_size
    assert document["header"]["unread"] == document["header"]["left_out"] == []
    assert document["header"]["release"] == "0.16.0"
    rows = {one["table"]: one["rows"] for one in document["tables"]}
    assert rows == {
        **{f"pgflow.{name}": 1 for name in ("flows", "steps", "runs", "step_states", "step_tasks")},
        **{f"pgflow.{name}": 0 for name in ("deps", "workers", "worker_functions")},
        **{"pgmq.meta": 1, "pgmq.q_orders": 1, "pgmq.a_orders": 0},  # not of queue private
    }
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    text = text_of(file)
    assert "4111 1111" in text
    for secret in (PASSWORD, "export_reader", "export_original", "private"):
        assert secret not in text


def validate(document: object) -> None:
    """What the published schema takes, without room for what it does not name."""

    def closed(schema: Any) -> Any:
        if isinstance(schema, list):
            return [closed(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        more = {"additionalProperties": False} if schema.get("type") == "object" else {}
        return {**{key: closed(value) for key, value in schema.items()}, **more}

    Draft202012Validator(closed(json.loads(resources.schema("export").read_text()))).validate(document)


def test_the_schema_is_printed_and_takes_what_a_failure_prints(original: str, tmp_path: Path) -> None:
    assert run("--json-schema").stdout == resources.schema("export").read_text()
    (tmp_path / "file").write_text("mine")
    for arguments, code in (([original], 2), (["host=127.0.0.1 port=1 user=x", "--force"], 1)):
        result = run(str(tmp_path / "file"), "--format", "json", "--dsn", *arguments)
        assert result.exit_code == code
        validate(json.loads(result.stdout))


def test_what_of_the_queues_may_not_be_read_is_told_and_makes_no_full_copy(
    grant: Callable[[str], str], tmp_path: Path
) -> None:
    file = tmp_path / "file"
    grants = (
        PGFLOW
        + "grant usage on schema pgmq to export_reader; grant select on pgmq.q_orders to export_reader;"
    )
    result = run(str(file), "--dsn", grant(grants))
    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        'Could not be read: pgmq.meta: grant select on "pgmq"."meta" to "export_reader";',
        "Could not be read: pgmq.q_orders_msg_id_seq: grant select on sequence"
        ' "pgmq"."q_orders_msg_id_seq" to "export_reader";',
        'Could not be read: pgmq.a_orders: grant select on "pgmq"."a_orders" to "export_reader";',
    ]
    assert ", 3 things unread." in result.stdout
    assert "export_reader" not in text_of(file)
    with Reader(file) as reader:
        assert reader.header.unread == (
            'pgmq.meta: grant select on "pgmq"."meta".',
            'pgmq.q_orders_msg_id_seq: grant select on sequence "pgmq"."q_orders_msg_id_seq".',
            'pgmq.a_orders: grant select on "pgmq"."a_orders".',
        )
    replayed = CliRunner().invoke(main, ["replay", "--from", str(file), "--server", "host=nowhere.invalid"])
    assert replayed.exit_code == 1
    assert "is not a full copy: the role that exported could not read everything." in replayed.stderr
    assert "pgmq.meta: grant select" in replayed.stderr


def test_whoever_exports_is_named_in_statements_to_run_and_nowhere_in_the_file(
    original: str, grant: Callable[[str], str], tmp_path: Path
) -> None:
    closed = 'Schema pgmq: grant usage on schema pgmq to "export_reader";'
    hidden = 'pgmq.meta: row security hides rows from role "export_reader"; export as a role with bypassrls.'
    dsn = grant(PGFLOW)
    result = run(str(tmp_path / "closed"), "--dsn", dsn)
    assert (result.exit_code, result.stderr) == (0, f"Could not be read: {closed}\n")
    with psycopg.connect(original, autocommit=True) as connection:
        connection.execute(
            "grant usage on schema pgmq to export_reader;"
            " grant select on all tables in schema pgmq, pgflow to export_reader;"
            " grant select on all sequences in schema pgmq to export_reader;"
            " alter table pgmq.meta enable row level security"
        )
        try:
            result = run(str(tmp_path / "hidden"), "--dsn", dsn)
            document = run(str(tmp_path / "again"), "--dsn", dsn, "--format", "json")
        finally:
            connection.execute("alter table pgmq.meta disable row level security")
    assert (result.exit_code, result.stderr) == (0, f"Could not be read: {hidden}\n")
    assert json.loads(document.stdout)["header"]["unread"] == [
        "pgmq.meta: row security hides rows; export as a role with bypassrls."
    ]
    for name, told in (
        ("closed", "Schema pgmq: grant usage on schema pgmq."),
        ("hidden", "pgmq.meta: row security hides rows; export as a role with bypassrls."),
    ):
        assert "export_reader" not in text_of(tmp_path / name)
        with Reader(tmp_path / name) as reader:
            assert reader.header.unread == (told,)


def test_pgflow_itself_must_be_readable(grant: Callable[[str], str], tmp_path: Path) -> None:
    dsn = grant(PGFLOW + "revoke select on pgflow.runs from export_reader;")
    result = run(str(tmp_path / "file"), "--dsn", dsn)
    assert result.exit_code == 1
    assert result.stderr == (
        'error: Role "export_reader" may not read pgflow.runs.\n'
        'Grant it: grant usage on schema pgflow to "export_reader";'
        ' grant select on all tables in schema pgflow to "export_reader";\n'
    )
    assert list(tmp_path.iterdir()) == []


def test_it_changes_nothing_and_is_of_one_snapshot(original: str, tmp_path: Path) -> None:
    with psycopg.connect(original, autocommit=True) as connection:
        before = signature.take(connection)

        def meanwhile(copied: Copied) -> None:
            if copied.table == "pgflow.flows":
                connection.execute("insert into pgflow.worker_functions (function_name) values ('late')")

        done = export(original, tmp_path / "file", on_copied=meanwhile)
        assert {copied.table: copied.rows for copied in done.tables}["pgflow.worker_functions"] == 0
        assert "late" not in text_of(tmp_path / "file")
        connection.execute("delete from pgflow.worker_functions")
        after = signature.take(connection)
    assert after == before


def test_a_file_that_exists_is_replaced_only_with_force(original: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    result = run(str(file), "--dsn", original)
    assert result.exit_code == 2
    assert result.stderr == f"error: {file} exists.\nName another file, or add --force to replace it.\n"
    assert file.read_text() == "mine"
    assert run(str(file), "--dsn", original, "--force", "--redact").exit_code == 0
    assert "4111 1111" not in text_of(file)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("force", [(), ("--force",)])
def test_what_is_no_regular_file_is_never_replaced(
    force: tuple[str, ...], original: str, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    (tmp_path / "dead").symlink_to(tmp_path / "nothing")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    before = {path.name: path.lstat() for path in tmp_path.iterdir()}
    for name, told in (
        ("pipe", "is no regular file"),
        ("null", "is no regular file"),
        ("dead", "is a link that leads nowhere"),
        ("circle", "is a link that leads nowhere"),
    ):
        result = run(str(tmp_path / name), "--dsn", original, *force)
        assert (result.exit_code, result.stderr) == (
            2,
            f"error: {tmp_path / name} {told}.\nName another file.\n",
        )
    assert {path.name: path.lstat() for path in tmp_path.iterdir()} == before


def test_a_link_to_a_file_stays_and_the_file_is_replaced(original: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.write_text("mine")
    link.symlink_to(Path("folder") / "target")
    result = run(str(link), "--dsn", original)
    assert (result.exit_code, result.stderr) == (
        2,
        f"error: {link} exists.\nName another file, or add --force to replace it.\n",
    )
    assert target.read_text() == "mine"
    assert run(str(link), "--dsn", original, "--force").exit_code == 0
    assert link.readlink() == Path("folder") / "target"
    with Reader(target) as reader:
        assert reader.header.release == "0.16.0"
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["folder", "link", "target"]


def test_a_pipe_that_appears_meanwhile_is_not_replaced(original: str, tmp_path: Path) -> None:
    file = tmp_path / "file"

    def appear(copied: Copied) -> None:
        if copied.table == "pgflow.flows":
            os.mkfifo(file)

    with pytest.raises(PgflowMigrateError, match="file is no regular file"):
        export(original, file, force=True, on_copied=appear)
    assert list(tmp_path.iterdir()) == [file]
    assert stat.S_ISFIFO(file.lstat().st_mode)


def test_a_name_as_long_as_a_name_may_be_is_written_and_a_longer_one_told(
    original: str, tmp_path: Path
) -> None:
    longest = "ü" * 127
    assert run(str(tmp_path / longest), "--dsn", original).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == [longest]
    too_long = tmp_path / (longest + "üü")
    result = run(str(too_long), "--dsn", "host=nowhere.invalid")
    assert result.exit_code == 1
    assert result.stderr == (
        f"error: {too_long} cannot be written: File name too long.\n"
        "Name a file in a folder with room for it.\n"
    )
    result = run(str(tmp_path / longest / "file"), "--dsn", "host=nowhere.invalid")
    assert result.exit_code == 1
    assert "/file cannot be written: Not a directory." in result.stderr


def test_a_folder_that_may_not_be_entered_is_told(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    try:
        with as_nobody(), pytest.raises(PgflowMigrateError) as caught:
            export("host=nowhere.invalid", tmp_path / "closed" / "file")
    finally:
        (tmp_path / "closed").chmod(0o700)
    assert caught.value.message == (f"{tmp_path / 'closed' / 'file'} cannot be written: Permission denied.")
    assert (caught.value.exit_code, caught.value.remedy) == (1, "Name a file in a folder with room for it.")


def test_a_folder_that_is_not_there_and_a_database_without_pgflow_are_told(
    original: str, server: Server, tmp_path: Path
) -> None:
    result = run(str(tmp_path / "no" / "file"), "--dsn", original)
    assert result.exit_code == 1
    assert "file cannot be written: No such file or directory." in result.stderr
    result = run(str(tmp_path / "file"), "--dsn", server.admin_dsn)
    assert result.exit_code == 1
    assert "There is no schema pgflow in this database." in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_leaves_the_old_file_and_no_half_one(original: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")

    def interrupt(copied: Copied) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(original, file, force=True, on_copied=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert file.read_text() == "old"


def test_a_big_table_is_not_held_in_memory(original: str, tmp_path: Path) -> None:
    with psycopg.connect(original, autocommit=True) as connection:
        connection.execute(
            "insert into pgflow.runs (flow_slug, input)"
            " select 'Orders', to_jsonb(repeat('long ', 50000)) from generate_series(1, 60)"
        )
        tracemalloc.start()
        try:
            done = export(original, tmp_path / "file", redacted=True)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            connection.execute("delete from pgflow.runs where jsonb_typeof(input) = 'string'")
    assert {copied.table: copied.rows for copied in done.tables}["pgflow.runs"] == 61
    assert peak < 5_000_000  # of 15 million characters
