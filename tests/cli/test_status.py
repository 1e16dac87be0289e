"""``pgflow-migrate status``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

import psycopg
import pytest
from click.testing import Result
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgflow_migrate.errors import EXIT_OK
from pgflow_migrate.releases.chain import REVISIONS
from pgflow_migrate.replay import signature
from pgflow_migrate.replay.differences import differences
from pgflow_migrate.upgrade import ledger

Invoke = Callable[..., Result]

TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC")


def execute(dsn: str, statement: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement.encode())


def shown(result: Result) -> dict[str, list[str]]:
    """The table by its names; lines without a name belong to the one before."""
    rows: dict[str, list[str]] = {}
    name = ""
    for line in result.stdout.splitlines():
        found = re.fullmatch(r"(\w*) +(.*)", line)
        assert found is not None, line
        name = found[1] or name
        rows.setdefault(name, []).append(found[2])
    return rows


def test_it_shows_release_ledger_and_what_is_pending(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    dsn = database_at("core_0_15_1")
    result = invoke("status", "--dsn", dsn)
    assert (result.exit_code, result.stderr) == (EXIT_OK, "")
    rows = shown(result)
    assert rows["database"][0].startswith(f"{conninfo_to_dict(dsn)['dbname']} (PostgreSQL 1")
    assert rows["role"] == ["postgres (superuser)"]
    assert rows["pgflow"] == ["0.15.1"]
    assert rows["drift"] == ["none"]
    assert rows["owner"] == ["postgres (its rights are ours)"]
    assert rows["revision"] == ["core_0_15_1"]
    assert [TIME.sub("TIME", line) for line in rows["ledger"]] == [
        "core_0_15_0  TIME",
        "core_0_15_1  TIME",
    ]
    assert rows["pending"] == ["core_0_16_0, queue_identity, dirty_runs"]


def test_json_has_the_same(database_at: Callable[[str], str], invoke: Invoke) -> None:
    document = json.loads(invoke("status", "--dsn", database_at("core_0_16_0"), "--format", "json").stdout)
    assert (document["release"], document["revision"], document["pending"]) == (
        "0.16.0",
        "core_0_16_0",
        ["queue_identity", "dirty_runs"],
    )
    assert {entry["name"]: entry["checksum"] for entry in document["ledger"]} == ledger.checksums(
        ["core_0_15_0", "core_0_15_1", "core_0_16_0"]
    )
    assert document["server"]["owns_pgflow"] is True


def test_an_upgraded_database_has_nothing_pending(database_at: Callable[[str], str], invoke: Invoke) -> None:
    rows = shown(invoke("status", "--dsn", database_at("dirty_runs")))
    assert rows["revision"] == ["dirty_runs"]
    assert [TIME.sub("TIME", line) for line in rows["ledger"]] == [
        f"{name:<{len('queue_identity')}}  TIME" for name in REVISIONS
    ]
    assert rows["pending"] == ["nothing"]
    assert rows["next"] == ["Nothing. To check every invariant, any time: pgflow-migrate verify"]
    assert "audit" not in rows


def test_a_database_without_pgflow_says_so(database_at: Callable[[str], str], invoke: Invoke) -> None:
    rows = shown(invoke("status", "--dsn", database_at("")))
    assert rows["pgflow"] == ["not installed"]
    assert rows["revision"] == ["none recorded"]
    assert "owner" not in rows
    assert rows["next"] == ["Install pgflow, or check the connection string: there is no schema pgflow here."]


def test_a_foreign_database_says_what_would_be_adopted(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    dsn = database_at("core_0_16_0")
    execute(dsn, "drop schema pgflow_migrate cascade; create table pgflow.notes (id int)")
    rows = shown(invoke("status", "--dsn", dsn))
    assert rows["pgflow"] == ["0.16.0"]
    assert rows["additions"] == ["1 of your own, of no consequence", "table notes is not part of the release"]
    assert rows["revision"] == ["none recorded"]
    assert rows["pending"] == ["queue_identity, dirty_runs"]


def test_differences_from_every_release_are_listed(database_at: Callable[[str], str], invoke: Invoke) -> None:
    dsn = database_at("core_0_16_0")
    execute(dsn, "drop schema pgflow_migrate cascade; alter table pgflow.runs add column tenant text")
    result = invoke("status", "--dsn", dsn)
    assert result.exit_code == EXIT_OK
    rows = shown(result)
    assert rows["pgflow"] == ["matches no release; the closest is 0.16.0"]
    assert rows["drift"] == ["1 difference from 0.16.0:", "column runs.tenant is not part of the release"]
    assert rows["next"] == ["Undo the drift, or upgrade pgflow itself to a release that is known."]
    assert rows["pending"] == ["unknown"]


def test_changed_and_unknown_revisions_are_marked(database_at: Callable[[str], str], invoke: Invoke) -> None:
    dsn = database_at("core_0_15_1")
    execute(
        dsn,
        """
        update pgflow_migrate.schema_migrations set checksum = 'x' where name = 'core_0_15_0';
        insert into pgflow_migrate.schema_migrations (name, checksum) values ('from_the_future', 'x');
        """,
    )
    rows = shown(invoke("status", "--dsn", dsn))
    assert rows["ledger"][0].endswith(" CHANGED since")
    assert rows["ledger"][2].endswith(" unknown: recorded by a newer pgflow-migrate")
    assert rows["pending"] == ["unknown"]


def test_a_record_that_the_catalogue_contradicts_is_said_plainly(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    dsn = database_at("core_0_16_0")
    execute(dsn, "update pgflow_migrate.alembic_version set version_num = 'queue_identity'")
    rows = shown(invoke("status", "--dsn", dsn))
    assert rows["disagree"][0].startswith(
        "The database records revision queue_identity, but schema pgflow is 0.16.0; from queue_identity "
    )
    assert rows["pending"] == ["unknown"]


def test_it_changes_nothing(database_at: Callable[[str], str], invoke: Invoke) -> None:
    dsn = database_at("")
    with psycopg.connect(dsn, autocommit=True) as connection:
        before = signature.take(connection)
        assert invoke("status", "--dsn", dsn).exit_code == EXIT_OK
        assert differences(before, signature.take(connection)) == ()


@pytest.fixture
def reader(database_at: Callable[[str], str]) -> Iterator[str]:
    """A role that may connect and nothing else."""
    dsn = database_at("core_0_16_0")
    execute(dsn, "drop role if exists status_reader")
    execute(dsn, "create role status_reader login")
    yield make_conninfo(dsn, user="status_reader")
    execute(dsn, "drop owned by status_reader")
    execute(dsn, "drop role status_reader")


def test_a_role_that_may_not_read_the_ledger_is_told_what_it_needs(reader: str, invoke: Invoke) -> None:
    result = invoke("status", "--dsn", reader)
    assert (result.exit_code, result.stderr) == (EXIT_OK, "")
    rows = shown(result)
    assert rows["pgflow"] == ["0.16.0"]
    said, *grants = rows["revision"]
    assert said == "not to be read by this role, nor the ledger; what it needs:"
    assert grants == [
        "grant usage on schema pgflow_migrate to status_reader;",
        "grant select on pgflow_migrate.schema_migrations to status_reader;",
        "grant select on pgflow_migrate.alembic_version to status_reader;",
    ]
    assert "ledger" not in rows
    assert rows["pending"] == ["unknown"]
    execute(make_conninfo(reader, user="postgres"), "".join(grants))
    rows = shown(invoke("status", "--dsn", reader))
    assert rows["revision"] == ["core_0_16_0"]
    assert rows["pending"] == ["queue_identity, dirty_runs"]


def test_a_reader_is_enough(reader: str, invoke: Invoke) -> None:
    owner = make_conninfo(reader, user="postgres")
    execute(owner, "grant usage on schema pgflow_migrate to status_reader")
    execute(owner, "grant select on all tables in schema pgflow_migrate to status_reader")
    rows = shown(invoke("status", "--dsn", reader))
    assert rows["role"] == ["status_reader"]
    assert rows["owner"] == ["postgres (not our rights)"]
    assert rows["pgflow"] == ["0.16.0"]


PAUSED = """
    insert into pgflow.worker_functions (function_name, paused_at, pause_reason) values
      ('fetch', '2026-03-04 05:06:07.89+00', 'queue "orders" has work that flow "orders" cannot account for'),
      ('it''s', '2026-03-04 05:06:08+00', 'flow "gone" does not exist'),
      ('idle', null, null)
"""


def test_paused_worker_functions_are_named_with_what_resumes_them(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    dsn = database_at("queue_identity")
    execute(dsn, PAUSED)
    execute(dsn, f"alter database {conninfo_to_dict(dsn)['dbname']} set datestyle to 'German'")
    rows = shown(invoke("status", "--dsn", dsn))
    assert rows["paused"] == [
        "fetch since 2026-03-04 05:06:07 UTC",
        'queue "orders" has work that flow "orders" cannot account for',
        "When the cause is mended: select pgflow.resume_worker_function('fetch');",
        "it's since 2026-03-04 05:06:08 UTC",
        'flow "gone" does not exist',
        "When the cause is mended: select pgflow.resume_worker_function('it''s');",
    ]
    document = json.loads(invoke("status", "--dsn", dsn, "--format", "json").stdout)
    assert document["paused_grants"] == []
    assert document["paused"][0] == {
        "function_name": "fetch",
        "paused_at": "2026-03-04T05:06:07.890000+00:00",
        "reason": 'queue "orders" has work that flow "orders" cannot account for',
        "resume": "select pgflow.resume_worker_function('fetch');",
    }
    for function in document["paused"]:
        execute(dsn, function["resume"])
    assert "paused" not in shown(invoke("status", "--dsn", dsn))


def _not_json(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def test_times_that_python_has_not_are_the_first_or_last_that_it_has(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    dsn = database_at("queue_identity")
    execute(dsn, PAUSED)
    execute(
        dsn,
        """
        update pgflow.worker_functions set paused_at = 'infinity' where function_name = 'fetch';
        update pgflow.worker_functions set paused_at = '0044-03-15 BC' where function_name = 'it''s';
        update pgflow_migrate.schema_migrations set applied_at = '-infinity' where name = 'core_0_15_0';
        update pgflow_migrate.schema_migrations set applied_at = '10000-01-01' where name = 'queue_identity';
        select pgflow.create_flow('every'), pgflow.create_flow('some');
        select pgmq.create('every'), pgmq.create('some');
        """,
    )
    execute(
        dsn,
        """
        select pgmq.send('every', '{}'), pgmq.send('some', '{}') from generate_series(1, 2);
        update pgmq.q_every set enqueued_at = 'infinity' where msg_id = 1;
        update pgmq.q_every set enqueued_at = '-infinity' where msg_id = 2;
        update pgmq.q_some set enqueued_at = '-infinity' where msg_id = 1;
        update pgmq.q_some set enqueued_at = now() - interval '50 hours' where msg_id = 2;
        """,
    )
    # Where midnight in UTC is another year.
    execute(dsn, f"alter database {conninfo_to_dict(dsn)['dbname']} set timezone to 'Asia/Tokyo'")
    result = invoke("status", "--dsn", dsn, "--format", "json")
    assert result.exit_code == EXIT_OK
    document = json.loads(result.stdout, parse_constant=_not_json)
    assert document["unread"] == []
    assert [function["paused_at"] for function in document["paused"]] == [
        "9999-12-31T23:59:59.999999+00:00",
        "0001-01-01T00:00:00+00:00",
    ]
    ledger_ = {entry["name"]: entry["applied_at"] for entry in document["ledger"]}
    assert list(ledger_) == list(REVISIONS[:4])
    assert ledger_["core_0_15_0"] == "0001-01-01T00:00:00+00:00"
    assert ledger_["queue_identity"] == "9999-12-31T23:59:59.999999+00:00"
    every, some = document["queues"]
    assert (every["queue_name"], every["total"], every["oldest_age"]) == ("every", 2, None)
    assert (some["queue_name"], some["total"], some["oldest_age"] // 3600) == ("some", 2, 50)
    rows = shown(invoke("status", "--dsn", dsn))
    assert rows["paused"][0] == "fetch since 9999-12-31 23:59:59 UTC"
    assert rows["queues"] == ["every: 2 visible of 2", "some: 2 visible of 2, the oldest 2 d old"]


def test_no_function_is_paused_before_queue_identity(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    document = json.loads(invoke("status", "--dsn", database_at("core_0_16_0"), "--format", "json").stdout)
    assert (document["paused"], document["paused_grants"]) == ([], [])


def test_a_role_that_may_not_read_worker_functions_is_told_what_it_needs(
    database_at: Callable[[str], str], invoke: Invoke
) -> None:
    dsn = database_at("queue_identity")
    execute(dsn, PAUSED)
    execute(dsn, "drop role if exists pause_reader")
    execute(dsn, "create role pause_reader login")
    reader = make_conninfo(dsn, user="pause_reader")
    try:
        result = invoke("status", "--dsn", reader)
        assert (result.exit_code, result.stderr) == (EXIT_OK, "")
        said, *grants = shown(result)["paused"]
        assert said == "whether worker functions are, this role may not read; what it needs:"
        assert grants == [
            "grant usage on schema pgflow to pause_reader;",
            "grant select on pgflow.worker_functions to pause_reader;",
        ]
        document = json.loads(invoke("status", "--dsn", reader, "--format", "json").stdout)
        assert (document["paused"], document["paused_grants"]) == (None, grants)
        execute(dsn, "".join(grants))
        assert shown(invoke("status", "--dsn", reader))["paused"][0] == "fetch since 2026-03-04 05:06:07 UTC"
    finally:
        execute(dsn, "drop owned by pause_reader")
        execute(dsn, "drop role pause_reader")
