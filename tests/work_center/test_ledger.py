"""The store's ledger: aliases, refusals, gaps, and the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from tests.work_center.stores import rows, run, schema

from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_COULD_NOT_RUN, BlockedError, PgflowMigrateError
from pgflow_migrate.work_center.chain import STEPS, checksum
from pgflow_migrate.work_center.errors import StepRefused
from pgflow_migrate.work_center.upgrade import upgrade_connection

Memory = Callable[..., sqlite3.Connection]
LEDGER = (
    "create table schema_migrations"
    " (name text primary key, checksum text not null, applied_at integer not null)"
)


def _entry(name: str, checksum_: str = "", applied_at: object = 400) -> str:
    return f"insert into schema_migrations values ('{name}', '{checksum_ or checksum(name)}', {applied_at})"


def _ledger(connection: sqlite3.Connection) -> dict[str, tuple[str, Any]]:
    found = connection.execute("select name, checksum, applied_at from schema_migrations order by rowid")
    return {name: (recorded, at) for name, recorded, at in found}


def test_every_step_is_recorded_with_checksum_and_time(memory: Memory) -> None:
    connection = memory()
    result = upgrade_connection(connection, now=1234)
    assert _ledger(connection) == {step.name: (checksum(step.name), 1234) for step in STEPS}
    assert (result.from_version, result.version, result.now) == (22, 35, 1234)
    assert [(done.step, done.outcome) for done in result.steps] == [(step.name, "applied") for step in STEPS]


def test_a_second_upgrade_does_nothing(memory: Memory) -> None:
    connection = memory(example=True)
    upgrade_connection(connection, now=1)
    before = list(connection.iterdump())
    result = upgrade_connection(connection, now=2)
    assert (result.already_current, result.steps, result.version) == (True, (), 35)
    assert list(connection.iterdump()) == before


def test_an_upgrade_stops_where_it_is_told_and_goes_on_later(memory: Memory) -> None:
    connection = memory()
    assert upgrade_connection(connection, now=1, to="27-coordinator-mailbox").version == 27
    result = upgrade_connection(connection, now=2)
    assert (result.from_version, [done.step[:2] for done in result.steps]) == (
        27,
        ["28", "29", "30", "31", "32", "33", "34", "35"],
    )
    assert [at for _, at in _ledger(connection).values()] == [1] * 5 + [2] * 8


def test_a_step_that_there_is_not_is_refused_by_name(memory: Memory) -> None:
    with pytest.raises(PgflowMigrateError) as caught:
        upgrade_connection(memory(), to="36")
    assert str(caught.value) == (
        'There is no step "36". There are 23-conversation-stream to 35-coordinator-provider-claims.'
    )


def test_an_alias_is_adopted_with_its_time_and_the_step_does_not_run(memory: Memory) -> None:
    connection = memory(
        LEDGER, _entry("23-conversation-stream-v1"), _entry("28-run-identity-v1", applied_at=0)
    )
    result = upgrade_connection(connection, now=1000, to="24")
    assert [(done.step, done.outcome) for done in result.steps] == [
        ("23-conversation-stream", "adopted"),
        ("24-action-stream", "applied"),
    ]
    ledger = _ledger(connection)
    assert ledger["23-conversation-stream"] == (checksum("23-conversation-stream"), 400)
    assert ledger["23-conversation-stream-v1"] == (checksum("23-conversation-stream-v1"), 400)
    assert connection.execute("select name from sqlite_master where name = 'conversations'").fetchall() == []


def test_an_alias_without_a_time_gets_that_of_the_upgrade(memory: Memory) -> None:
    connection = memory(
        "create table conversations (work_item_id)",
        LEDGER,
        _entry("23-conversation-stream-v1", applied_at=0),
    )
    upgrade_connection(connection, now=1000, to="23")
    assert _ledger(connection)["23-conversation-stream"][1] == 1000


def test_a_recorded_step_in_the_middle_is_passed_over_and_a_gap_filled(memory: Memory) -> None:
    connection = memory()
    upgrade_connection(connection, now=1, to="29")
    connection.execute("delete from schema_migrations where name = '24-action-stream'")
    result = upgrade_connection(connection, now=2, to="30")
    assert result.from_version == 23
    assert [done.step for done in result.steps] == ["24-action-stream", "30-backfill-projections"]


@pytest.mark.parametrize(
    ("entries", "names"),
    [
        ([_entry("24-action-stream", "0" * 64)], '"24-action-stream"'),
        ([_entry("24-action-stream-v1", checksum("24-action-stream"))], '"24-action-stream-v1"'),
        (
            [_entry("35-coordinator-provider-claims", "x"), _entry("23-conversation-stream", "x")],
            '"23-conversation-stream", "35-coordinator-provider-claims"',
        ),
    ],
)
def test_a_changed_checksum_is_refused_by_name_before_anything(
    memory: Memory, entries: list[str], names: str
) -> None:
    connection = memory(LEDGER, *entries)
    before = list(connection.iterdump())
    with pytest.raises(BlockedError) as caught:
        upgrade_connection(connection, now=1)
    assert caught.value.message == (
        f"The store was upgraded by another edition of step {names}: the recorded checksum differs."
    )
    assert caught.value.exit_code == EXIT_BLOCKED
    assert list(connection.iterdump()) == before


def test_the_checksum_of_an_alias_counts_no_more_where_the_name_is_recorded(memory: Memory) -> None:
    connection = memory(LEDGER)
    upgrade_connection(connection, now=1)
    run(connection, _entry("24-action-stream-v1", "changed"))
    assert upgrade_connection(connection, now=2).already_current


@pytest.mark.parametrize("name", ["36-something-new", "35-coordinator-provider-claims-v1", "22-before"])
def test_a_name_that_nobody_knows_is_a_newer_store(memory: Memory, name: str) -> None:
    connection = memory(LEDGER, _entry(name))
    with pytest.raises(PgflowMigrateError) as caught:
        upgrade_connection(connection, now=1)
    assert str(caught.value) == (
        f'The store was upgraded by a newer program: it records the step "{name}".'
        " Install the newest pgflow-migrate."
    )
    assert caught.value.exit_code == EXIT_COULD_NOT_RUN


def test_a_table_of_the_ledgers_name_that_is_none_is_refused(memory: Memory) -> None:
    connection = memory("create table schema_migrations (version integer)")
    with pytest.raises(PgflowMigrateError, match="is no ledger: it has no column applied_at"):
        upgrade_connection(connection, now=1)


def test_a_step_that_fails_leaves_those_before_it(memory: Memory) -> None:
    connection = memory("""insert into work_items (id, messages) values ('w', '[{"role":{}}]')""")
    with pytest.raises(StepRefused) as caught:
        upgrade_connection(connection, now=1)
    assert caught.value.step == "30-backfill-projections"
    assert not connection.in_transaction
    assert list(_ledger(connection)) == [step.name for step in STEPS[:7]]
    connection.execute("update work_items set messages = null")
    assert [done.step[:2] for done in upgrade_connection(connection, now=2).steps] == [
        "30",
        "31",
        "32",
        "33",
        "34",
        "35",
    ]


def test_in_the_callers_transaction_everything_is_the_callers(memory: Memory) -> None:
    connection = memory(example=True)
    before = schema(connection), rows(connection)
    connection.execute("begin")
    upgrade_connection(connection, now=1000)
    assert connection.in_transaction
    assert len(_ledger(connection)) == 13
    connection.execute("rollback")
    assert (schema(connection), rows(connection)) == before


def test_in_the_callers_transaction_a_failed_step_leaves_those_before_it(memory: Memory) -> None:
    connection = memory("""insert into work_items (id, messages) values ('w', '[{"role":{}}]')""")
    connection.execute("begin")
    with pytest.raises(StepRefused):
        upgrade_connection(connection, now=1)
    connection.execute("commit")
    assert list(_ledger(connection)) == [step.name for step in STEPS[:7]]
    assert connection.execute("select count(*) from conversations").fetchone() == (0,)


def test_the_callers_connection_keeps_its_settings_and_gets_nothing(memory: Memory) -> None:
    connection = memory(example=True)
    connection.isolation_level, connection.row_factory = "DEFERRED", sqlite3.Row
    connection.text_factory = bytes
    upgrade_connection(connection, now=1000)
    settings = (connection.isolation_level, connection.row_factory, connection.text_factory)
    assert settings == ("DEFERRED", sqlite3.Row, bytes)
    assert not connection.in_transaction
    assert connection.execute("select name from temp.sqlite_master").fetchall() == []
    with pytest.raises(sqlite3.OperationalError, match="no such function"):
        connection.execute("select regexp('a', 'a')")


def test_a_table_in_the_way_of_the_programs_temporary_one_is_dropped(memory: Memory) -> None:
    connection = memory("create table migration_context (a)")
    upgrade_connection(connection, now=1)
    assert connection.execute("select 1 from sqlite_master where name = 'migration_context'").fetchall() == []


@pytest.mark.parametrize("option", ["now", "source_schema_version"])
def test_a_number_beyond_javascripts_is_refused(memory: Memory, option: str) -> None:
    with pytest.raises(PgflowMigrateError, match=f"{option} is 9007199254740992, which"):
        upgrade_connection(memory(), **{option: 2**53})  # type: ignore[arg-type]
