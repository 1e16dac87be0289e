"""An export, rebuilt: the same rows, queues, sequences and findings; redacted: the same findings."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgflow_migrate import database, resources
from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.export import ExportFileError, Reader, export, rebuild
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.scenario import load
from pgflow_migrate.replay.templates import Templates
from pgflow_migrate.servers import Server, attach_queues_to_extension

Make = Callable[[str], str]

# Rows, metadata, archives and positions; damaged tables; spellings; slugs of a laxer time; bodies that lie.
SCENARIOS = ("every_status", "queue_malformed", "queue_metadata_ambiguous", "slug_invalid")
_numbers = itertools.count(1)

# What COPY, JSON or gzip could lose.
HARD = r"""
insert into pgflow.flows (flow_slug) values ('hard');
insert into pgflow.steps (flow_slug, step_slug) values ('hard', 'one');
insert into pgflow.runs (flow_slug, input, started_at, completed_at) values
  ('hard', '"\\N"', '-infinity', 'infinity'),
  ('hard', '{"ü\u2028\t": 1e400}', '0044-03-15 12:00:00 BC', null);
insert into pgflow.worker_functions (function_name, debounce)
values (E'\\N', '1 mon -2 days 00:00:03.000001'), ('', '1 day'), (E'a\tb\r\n\\.\\', '9 years');
"""


@pytest.fixture(scope="module")
def database_of(server: Server, templates: Templates) -> Iterator[Make]:
    """A database with a scenario in it, or, without a name, an empty one; all are dropped at the end."""
    made: dict[str, str] = {}

    def make(name: str) -> str:
        key = name or f"empty_{next(_numbers)}"
        if key not in made:
            made[key] = templates.clone("core_0_16_0", f"export_{key}")
            if name:
                scenario = load(resources.fixtures() / "0.16.0" / name)
                with psycopg.connect(made[key], autocommit=True) as connection:
                    connection.execute(scenario.populate.encode())
                    if name == "every_status":
                        connection.execute(HARD.encode())
        return made[key]

    yield make
    for key in made:
        server.drop_database(f"export_{key}")


def rebuilt(path: Path, dsn: str) -> tuple[str, ...]:
    with Reader(path) as reader, database.connect(dsn, autocommit=True) as connection:
        return rebuild(connection, reader).notes


def state(dsn: str) -> tuple[Any, ...]:
    """Rows without their versions, sequences, and the catalogue without file nodes."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        found = signature.take(connection, ("pgflow", "pgmq"))
    rows = {name: [row[:-1] for row in table.rows] for name, table in found.tables.items()}
    columns = {name: table.columns for name, table in found.tables.items()}
    facts = {name: re.sub(r" file \d+", "", text) for name, text in found.catalogue.items()}
    return rows, columns, found.sequences, facts


def findings(dsn: str) -> list[Any]:
    report = run_audit(dsn)
    return [
        (
            *(f.severity, f.code, f.flow_slug, f.step_slug, f.queue_name, f.count, f.hint),
            *(sample for sample in f.samples if not sample.startswith("taken at")),
        )
        for f in report.findings
    ]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_rebuilt_database_is_the_original(name: str, database_of: Make, tmp_path: Path) -> None:
    original, copy = database_of(name), database_of("")
    done = export(original, tmp_path / "file")
    assert rebuilt(tmp_path / "file", copy) == tuple(
        f"Not in the file: {text}" for text in done.header.left_out
    )
    if name == "queue_malformed":
        assert done.header.left_out == ()
    assert state(copy) == state(original)
    assert findings(copy) == findings(original)


@pytest.mark.parametrize("name", ["every_status", "message_body_mismatch", "queue_malformed"])
def test_the_audit_of_a_redacted_copy_is_that_of_the_original(
    name: str, database_of: Make, tmp_path: Path
) -> None:
    original, copy = database_of(name), database_of("")
    export(original, tmp_path / "file", redacted=True)
    rebuilt(tmp_path / "file", copy)
    assert findings(copy) == findings(original)
    with psycopg.connect(copy, autocommit=True) as connection:
        tables = signature.take(connection, ("pgflow", "pgmq")).tables
    with psycopg.connect(original, autocommit=True) as connection:
        before = signature.take(connection, ("pgflow", "pgmq")).tables
    assert {n: len(rows.rows) for n, rows in tables.items()} == {
        n: len(rows.rows) for n, rows in before.items()
    }


def test_members_of_the_extension_are_members_again(
    database_of: Make, server: Server, templates: Templates, tmp_path: Path
) -> None:
    if templates.pgmq != "extension":
        pytest.skip("PGMQ is no extension on this server, so that nothing can be its member")
    original = templates.clone("core_0_16_0", "export_members")
    try:
        with psycopg.connect(original, autocommit=True) as connection:
            connection.execute("select pgflow.create_flow('Orders'); select pgflow.create_flow('mail')")
            attach_queues_to_extension(connection, "Orders")
        copy = database_of("")
        export(original, tmp_path / "file")
        assert rebuilt(tmp_path / "file", copy) == ()
        assert state(copy) == state(original)
    finally:
        server.drop_database("export_members")


def test_queues_of_another_pgmq_get_the_column_that_this_one_needs(database_of: Make, tmp_path: Path) -> None:
    original, copy = database_of("delayed_and_retried"), database_of("")
    with psycopg.connect(original, autocommit=True) as connection:  # as PGMQ 1.5.1 makes its queues
        queues = connection.execute("select lower(flow_slug) from pgflow.flows").fetchall()
        for (queue,) in queues:
            connection.execute(f"alter table pgmq.q_{queue} drop column last_read_at")
            connection.execute(f"alter table pgmq.a_{queue} drop column last_read_at")
    export(original, tmp_path / "file")
    assert rebuilt(tmp_path / "file", copy) == (
        "Queues got the column last_read_at, which the PGMQ of this server needs.",
    )
    assert {finding[0] for finding in findings(copy)} == {"info"}


def test_a_file_that_was_changed_by_hand_is_refused_and_nothing_is_left(
    database_of: Make, tmp_path: Path
) -> None:
    import gzip

    export(database_of("every_status"), tmp_path / "file")
    copy = database_of("")
    before = state(copy)
    text = gzip.decompress((tmp_path / "file").read_bytes()).decode()
    for old, new, told in (
        ('"name":"runs"', '"name":"pg_authid"', "pgflow.pg_authid: no such table"),
        (
            '"schema":"pgflow","name":"flows"',
            '"schema":"public","name":"flows"',
            "public.flows: no such table",
        ),
        ('"started_at"', '"began_at"', 'column "began_at" of relation'),
        ('["hard","3",', '["hard","three",', "invalid input syntax for type integer"),
    ):
        assert old in text
        (tmp_path / "file").write_bytes(gzip.compress(text.replace(old, new, 1).encode()))
        with pytest.raises(ExportFileError, match=r"does not fit pgflow 0\.16\.0") as caught:
            rebuilt(tmp_path / "file", copy)
        assert told in caught.value.message
    types = text.replace('"type":"jsonb"', '"type":"int) ; drop table pgflow.runs --"', 1)
    (tmp_path / "file").write_bytes(gzip.compress(types.encode()))
    with pytest.raises(ExportFileError):
        rebuilt(tmp_path / "file", copy)
    assert state(copy) == before


FREELY_WRITTEN = """
select pgflow.create_flow('Orders');
select pgflow.add_step('Orders', 'load');
select pgflow.add_step('Orders', 'mail', array['load']);
select pgflow.start_flow('Orders', '{"cancelled": true}');
select pgflow._cascade_force_skip_steps(run_id, 'load', 'Jane Doe asked to cancel') from pgflow.runs;
alter table pgmq.meta add owner text default 'Jane Doe';
alter table pgmq.meta add nickname text generated always as ('Jane Doe'::text) stored;
alter table pgflow.runs add note text default 'Jane Doe';
create table pgflow.notes as select 'Jane Doe' as note;
alter table pgflow.workers alter stopped_at type text;
insert into pgflow.workers (worker_id, queue_name, function_name, stopped_at)
values (gen_random_uuid(), 'orders', 'orders', 'Jane Doe');
"""


def test_nothing_that_somebody_added_or_wrote_freely_is_in_a_redacted_copy(
    database_of: Make, tmp_path: Path
) -> None:
    import gzip

    original, copy = database_of(""), database_of("")
    with psycopg.connect(original, autocommit=True) as connection:
        connection.execute(FREELY_WRITTEN.encode())
    export(original, tmp_path / "open")
    done = export(original, tmp_path / "file", redacted=True)
    assert b"Jane Doe" in gzip.decompress((tmp_path / "open").read_bytes())
    assert b"jane" not in gzip.decompress((tmp_path / "file").read_bytes()).lower()
    assert {
        "The column pgmq.meta.owner.",
        "The generated column pgmq.meta.nickname.",
        "column runs.note in schema pgflow was added to the release.",
        "table notes in schema pgflow was added to the release.",
    } <= set(done.header.left_out)
    rebuilt(tmp_path / "file", copy)
    with psycopg.connect(copy) as connection:
        assert connection.execute(
            "select step_slug, skip_reason from pgflow.step_states order by step_slug"
        ).fetchall() == [("load", "x" * 16), ("mail", "dependency_skipped")]
        assert connection.execute("select input from pgflow.runs").fetchall() == [({"a-------": True},)]
        assert connection.execute("select queue_name, stopped_at from pgflow.workers").fetchall() == [
            ("orders", None)
        ]


def test_columns_that_were_added_to_pgmqs_metadata_are_told_and_not_copied(
    database_of: Make, tmp_path: Path
) -> None:
    original, copy = database_of(""), database_of("")
    with psycopg.connect(original, autocommit=True) as connection:
        connection.execute("select pgflow.create_flow('Orders'); alter table pgmq.meta add owner text")
        before = connection.execute("select queue_name, is_unlogged, created_at from pgmq.meta").fetchall()
    export(original, tmp_path / "file")
    assert rebuilt(tmp_path / "file", copy) == ("Not in the file: The column pgmq.meta.owner.",)
    with psycopg.connect(copy) as connection:
        after = connection.execute("select queue_name, is_unlogged, created_at from pgmq.meta").fetchall()
    assert after == before
    assert [name for name, *_ in after] == ["Orders"]


def test_a_limit_that_a_result_keeps_its_placeholder_keeps(database_of: Make, tmp_path: Path) -> None:
    original, copy = database_of(""), database_of("")
    limit = "alter table pgflow.runs add constraint short check (octet_length(input::text) <= 60)"
    for dsn in (original, copy):
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(limit)
    with psycopg.connect(original, autocommit=True) as connection:
        connection.execute(
            "insert into pgflow.flows (flow_slug) values ('flags');"
            "insert into pgflow.runs (flow_slug, input)"
            " values ('flags', '[true, true, true, true, true, true, true, true, true, true]')"
        )
    export(original, tmp_path / "file", redacted=True)
    rebuilt(tmp_path / "file", copy)
    with psycopg.connect(copy) as connection:
        assert connection.execute("select input from pgflow.runs").fetchall() == [([True] * 10,)]
