"""Databases that are not at 0.16.0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate import resources
from pgflow_migrate.audit import render, script
from pgflow_migrate.audit.run import run_audit

Database = psycopg.Connection[dict[str, Any]]
Audited = Callable[[Database], list[tuple[Any, ...]]]


def unexpected(*samples: str, count: int | None = None) -> list[tuple[Any, ...]]:
    return [("error", "release-unexpected", None, None, None, count or len(samples), samples)]


@pytest.mark.parametrize(
    ("revision", "release"),
    [
        ("core_0_15_0", "pgflow 0.15.0 or 0.15.1"),
        ("core_0_15_1", "pgflow 0.15.0 or 0.15.1"),
        ("core_0_16_0", "pgflow 0.16.0"),
    ],
)
def test_every_release_that_the_chain_takes_is_audited(
    revision: str, release: str, database_at: Callable[[str], str], connect: Callable[[str], Database]
) -> None:
    database = connect(database_at(revision))
    database.execute("select pgflow.create_flow('orders'); select pgflow.add_step('orders', 'pack')")
    database.execute("select pgflow.start_flow('orders', '{}')")
    report = run_audit(database)
    assert report.blocking == ()
    assert report.findings[-1].samples[2] == f"{release}, PostgreSQL {report.server}"
    database.execute("select pgmq.send('orders', '{}'::jsonb)")
    assert [finding.code for finding in run_audit(database).blocking] == ["message-without-task"]


def test_a_database_without_pgflow(
    database_at: Callable[[str], str], connect: Callable[[str], Database], audited: Audited
) -> None:
    database = connect(database_at(""))
    assert audited(database) == unexpected("schema pgflow is missing")
    report = run_audit(database)
    assert (report.findings[-1].samples[0], report.findings[-1].samples[2:]) == (
        "1 error, 0 warnings",
        (f"pgflow not installed, PostgreSQL {report.server}",),
    )


def test_an_empty_schema_pgflow(
    database_at: Callable[[str], str], connect: Callable[[str], Database], audited: Audited
) -> None:
    database = connect(database_at(""))
    database.execute("create schema pgflow")
    ((severity, code, *_, count, samples),) = audited(database)
    assert (severity, code, count, len(samples)) == ("error", "release-unexpected", 14, 14)
    assert "table pgflow.step_tasks is missing" in samples
    assert "function pgflow.start_flow(text, jsonb, uuid) is missing" in samples


def test_a_database_that_has_queue_identity_says_so(
    database_at: Callable[[str], str], connect: Callable[[str], Database], audited: Audited
) -> None:
    database = connect(database_at("queue_identity"))
    database.execute("select pgflow.create_flow('orders')")
    assert audited(database) == []
    report = run_audit(database)
    assert report.already_upgraded
    assert [(f.severity, f.code, f.count, f.samples) for f in report.findings[:-1]] == [
        ("info", "already-upgraded", 1, ("queue_identity or later",))
    ]
    last = report.findings[-1]
    assert (last.samples[0], last.samples[2:]) == (
        "0 errors, 0 warnings",
        (f"pgflow queue_identity or later, PostgreSQL {report.server}",),
    )
    assert last.hint == "A point-in-time report."
    document = render.document(report)
    assert document["status"] == "already-upgraded"
    assert document["note"].endswith(
        ": this audit has nothing to look for; pgflow-migrate status says what is pending."
    )
    assert "nothing to upgrade" not in repr(report)  # dirty_runs is pending
    assert "Nothing stands" not in document["note"]


@pytest.mark.parametrize(
    "change",
    [
        "drop extension if exists pgmq cascade; drop schema if exists pgmq cascade",
        "revoke all on schema pgmq from public; set session authorization nobody_special",
        "create table public.mine (task pgflow.step_tasks)",
    ],
)
def test_nothing_is_in_the_way_of_a_database_that_has_queue_identity(
    change: str, database_at: Callable[[str], str], connect: Callable[[str], Database], audited: Audited
) -> None:
    database = connect(database_at("queue_identity"))
    database.execute(
        "do $$ begin create role nobody_special; exception when duplicate_object then null; end $$"
    )
    database.execute(change.encode())
    assert audited(database) == []
    assert run_audit(database).already_upgraded


@pytest.mark.parametrize(
    ("change", "samples"),
    [
        ("drop index pgflow.step_tasks_queue_message_key", 0),
        ("alter table pgflow.steps drop constraint queue_name_is_canonical", 0),
        ("drop table pgflow.worker_functions cascade", 1),
        ("alter table pgflow.step_tasks drop column queue_name", 0),
    ],
)
def test_a_part_of_queue_identity_is_no_upgraded_database(
    change: str, samples: int, database_at: Callable[[str], str], connect: Callable[[str], Database]
) -> None:
    database = connect(database_at("queue_identity"))
    database.execute(change.encode())
    (blocking,) = run_audit(database).blocking
    assert blocking.code == "release-unexpected"
    assert blocking.hint.startswith("Part of queue identity is here, part is not: ")
    assert sum(sample.endswith(" is missing") for sample in blocking.samples) == samples
    assert (
        f"pgflow unknown, PostgreSQL {run_audit(database).server}" in run_audit(database).findings[-1].samples
    )


def test_the_preflight_refuses_to_upgrade_twice(
    database_at: Callable[[str], str], connect: Callable[[str], Database]
) -> None:
    database = connect(database_at("queue_identity"))
    with database.transaction(force_rollback=True):
        database.execute(script.findings_block().encode())
        with pytest.raises(psycopg.Error, match="queue identity is here already") as refused:
            database.execute((resources.revision_sql("queue_identity") / "preflight_raise.sql").read_bytes())
    assert refused.value.sqlstate == "PF001"
    assert refused.value.diag.message_hint == (
        "Nothing was changed. pgflow-migrate status says which revision this is, and what is pending."
    )


@pytest.mark.parametrize(
    ("change", "sample"),
    [
        ("alter table pgflow.steps add column queue_name text", "pgflow.steps has column queue_name already"),
        ("alter table pgflow.runs alter column status type varchar", "pgflow.runs lacks column status text"),
        ("drop table pgflow.deps", "table pgflow.deps is missing"),
        (
            "drop function pgflow.start_tasks(text, bigint[], uuid)",
            "function pgflow.start_tasks(text, bigint[], uuid) is missing",
        ),
        (
            "drop function pgflow.ensure_flow_compiled(text, jsonb)",
            "function pgflow.ensure_flow_compiled(text, jsonb) is missing",
        ),
    ],
)
def test_a_difference_is_named_and_nothing_else_is_inspected(
    change: str, sample: str, database: Database, audited: Audited
) -> None:
    database.execute("select pgflow.create_flow('a__b')")
    database.execute(change.encode())
    assert audited(database) == unexpected(sample)


@pytest.mark.parametrize(
    ("addition", "sample"),
    [
        (
            "create function pgflow._archive_messages(text[], bigint[]) returns void "
            "language sql as 'select'",
            "function pgflow._archive_messages(text[], bigint[]) is in the way",
        ),
        (
            "create index step_tasks_queue_message_key on pgflow.step_tasks (message_id)",
            "relation pgflow.step_tasks_queue_message_key is in the way",
        ),
        (
            "alter table pgflow.steps add constraint queue_name_is_canonical check (step_slug <> '')",
            "constraint queue_name_is_canonical on pgflow.steps is in the way",
        ),
        (
            'create table public."My log" (task pgflow.step_tasks)',
            'column public."My log".task of type pgflow.step_tasks is in the way',
        ),
        (
            "create materialized view public.kept as select array_agg(s) as steps from pgflow.steps s",
            "column public.kept.steps of type pgflow.steps is in the way",
        ),
    ],
)
def test_what_the_upgrade_would_stumble_over_is_named(
    addition: str, sample: str, database: Database, audited: Audited
) -> None:
    database.execute(addition.encode())
    assert audited(database) == unexpected(sample)
    (blocking,) = run_audit(database).blocking
    assert blocking.hint == (
        "The upgrade makes or drops these itself, or rewrites the table. Rename or drop them (and make "
        "them again afterwards); nothing else was inspected."
    )


def test_what_users_added_does_not_matter(database: Database, audited: Audited) -> None:
    database.execute("create type public.pair as (first integer, last integer)")
    database.execute(
        "alter table pgflow.runs add column tenant text; create table pgflow.mine (id integer, "
        "span int4range, spans int4multirange, ends public.pair);"
        "create function pgflow.mine() returns integer language sql as 'select 1'"
    )
    assert audited(database) == []


def test_without_pgmq_everything_else_is_still_judged(database: Database, audited: Audited) -> None:
    database.execute("select pgflow.create_flow('a__b'); select pgflow.add_step('a__b', '_c')")
    database.execute("select pgflow.start_flow('a__b', '{}')")
    database.execute("drop extension if exists pgmq cascade; drop schema if exists pgmq cascade")
    assert [row[:4] for row in audited(database)] == [
        ("error", "pgmq-absent", None, None),
        ("error", "slug-double-underscore", "a__b", None),
        ("error", "slug-leading-underscore", "a__b", "_c"),
    ]


def test_a_pgmq_without_headers_is_too_old(database: Database, audited: Audited) -> None:
    database.execute("alter type pgmq.message_record drop attribute headers")
    assert audited(database) == [("error", "pgmq-absent", None, None, None, 1, ())]


@pytest.mark.parametrize(
    "disguise",
    [
        "alter table pgmq.meta rename to kept; create view pgmq.meta as select * from pgmq.kept",
        "alter type pgmq.message_record rename to kept; create table pgmq.message_record (headers jsonb)",
    ],
)
def test_something_else_by_the_name_is_not_pgmqs(disguise: str, database: Database, audited: Audited) -> None:
    database.execute(disguise.encode())
    assert audited(database) == [("error", "pgmq-absent", None, None, None, 1, ())]
