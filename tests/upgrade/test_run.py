"""The upgrade as a function: what it returns, tells, and does to the session."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from threading import Thread

import psycopg
import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from pgflow_migrate import database, resources
from pgflow_migrate.errors import EXIT_BLOCKED, BlockedError, PgflowMigrateError
from pgflow_migrate.releases.chain import HEAD
from pgflow_migrate.upgrade.progress import (
    Event,
    FileDone,
    FileStarted,
    Found,
    Note,
    RevisionApplied,
    RevisionStarted,
)
from pgflow_migrate.upgrade.run import Applied, Backfilled, upgrade
from pgflow_migrate.upgrade.session import Fence

Holding = Callable[[str, str], AbstractContextManager[int]]
Unchanged = Callable[[str], AbstractContextManager[None]]


def execute(dsn: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def database_name(dsn: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])


def test_the_chain_runs_from_the_oldest_release_to_the_newest(database_at: Callable[[str], str]) -> None:
    dsn = database_at("core_0_15_0")
    execute(
        dsn,
        """
        select pgflow.create_flow('order_flow');
        select pgflow.add_step('order_flow', 'first');
        select pgflow.add_step('order_flow', 'second', array['first']);
        select pgflow.start_flow('order_flow', '{}');
        select pgflow.start_flow('order_flow', '{}');
        """,
    )
    result = upgrade(dsn)
    assert (result.from_release, result.revision, result.already_current) == (
        "0.15.0",
        HEAD,
        False,
    )
    assert [applied.revision for applied in result.applied] == [
        "core_0_15_1",
        "core_0_16_0",
        "queue_identity",
        "dirty_runs",
    ]
    assert all(applied.seconds > 0 for applied in result.applied)
    assert result.backfilled == Backfilled(steps=2, tasks=2)
    queues = execute(dsn, "select distinct queue_name from pgflow.step_tasks")
    assert queues == [("order_flow",)]


def test_a_database_without_pgflow_gets_it_from_the_beginning(database_at: Callable[[str], str]) -> None:
    dsn = database_at("")
    heard: list[Event] = []
    result = upgrade(dsn, on_progress=heard.append)
    assert result.from_release is None
    assert [applied.revision for applied in result.applied] == [
        "core_0_15_0",
        "core_0_15_1",
        "core_0_16_0",
        "queue_identity",
        "dirty_runs",
    ]
    assert Found(None, None, recorded=False) in heard


def test_the_listener_hears_of_every_revision_and_file_in_order(database_at: Callable[[str], str]) -> None:
    dsn = database_at("core_0_15_1")
    heard: list[Event] = []
    result = upgrade(dsn, "core_0_16_0", on_progress=heard.append)
    assert heard == [
        Found("0.15.1", "core_0_15_1", recorded=True),
        RevisionStarted("core_0_16_0", 1, 1),
        *(
            event
            for started in heard
            if isinstance(started, FileStarted)
            for event in (started, FileDone(started.revision, started.file))
        ),
        RevisionApplied("core_0_16_0", result.applied[0].seconds),
    ]
    files = [event.file for event in heard if isinstance(event, FileStarted)]
    assert files == ["drop_ensure_flow_compiled.sql", "functions/ensure_flow_compiled.sql"]
    assert result.applied == (Applied("core_0_16_0", result.applied[0].seconds),)


def test_a_listener_that_fails_rolls_everything_back(
    database_at: Callable[[str], str], unchanged: Unchanged
) -> None:
    dsn = database_at("core_0_15_0")

    def fail(event: Event) -> None:
        if event == RevisionStarted("core_0_16_0", 2, 2):
            raise RuntimeError("the listener had enough")

    with unchanged(dsn), pytest.raises(RuntimeError, match="the listener had enough"):
        upgrade(dsn, "core_0_16_0", on_progress=fail)


def test_the_servers_defaults_do_not_matter(database_at: Callable[[str], str]) -> None:
    dsn = database_at("core_0_15_0")
    name = database_name(dsn)
    execute(
        dsn,
        f"""
        alter database {name} set search_path = nowhere;
        alter database {name} set datestyle = 'German, DMY';
        alter database {name} set default_transaction_isolation = 'serializable';
        """,
    )
    assert upgrade(dsn).revision == HEAD


def test_a_limit_for_ordinary_statements_does_not_stop_it_and_is_told(
    database_at: Callable[[str], str], holding: Holding, waiting: Callable[[str], None]
) -> None:
    dsn = database_at("core_0_15_0")
    heard: list[Event] = []
    with psycopg.connect(dsn, autocommit=True) as watcher:
        with holding(dsn, "lock table pgflow.step_tasks"):
            execute(dsn, f"alter database {database_name(dsn)} set statement_timeout = '1500ms'")
            thread = Thread(target=lambda: upgrade(dsn, "core_0_15_1", on_progress=heard.append))
            thread.start()
            waiting(dsn)
            # Until it has waited for longer than the limit.
            watcher.execute("set statement_timeout = 0")
            watcher.execute(
                """
                do $$
                begin
                  while exists (
                    select from pg_stat_activity
                    where application_name = 'pgflow-migrate' and datname = current_database()
                      and clock_timestamp() < query_start + interval '2 seconds'
                  ) loop
                    perform pg_sleep(0.05), pg_stat_clear_snapshot();
                  end loop;
                end;
                $$
                """
            )
        thread.join()
    assert Note("statement_timeout is 1500ms here (database); it does not apply within the upgrade.") in heard
    assert execute(dsn, "table pgflow_migrate.alembic_version") == [("core_0_15_1",)]


def test_nothing_is_left_in_the_session(database_at: Callable[[str], str]) -> None:
    dsn = database_at("core_0_15_0")
    execute(dsn, f"alter database {database_name(dsn)} set statement_timeout = '7min'")
    engine = database.engine(dsn)
    names = ["statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout", "search_path"]
    shown = "select array(select current_setting(n) from unnest(%s::text[]) as n)"
    try:
        with engine.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, psycopg.Connection)
            before = driver.execute(shown, (names,)).fetchone()
            connection.rollback()
            config = Config(str(resources.alembic_ini()))
            config.attributes.update(connection=connection, fence=Fence(lock_timeout=timedelta(seconds=3)))
            command.upgrade(config, "core_0_16_0")
            within = driver.execute(shown, (names,)).fetchone()
            connection.commit()
            after = driver.execute(shown, (names,)).fetchone()
    finally:
        engine.dispose()
    assert before is not None
    assert within is not None
    assert before[0] == ["7min", "0", "0", '"$user", public']
    assert within[0][:3] == ["0", "0", "3s"]
    assert after == before


def test_a_given_connection_has_to_be_read_committed(database_at: Callable[[str], str]) -> None:
    dsn = database_at("core_0_15_0")
    engine = sa.create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=sa.NullPool
    )
    config = Config(str(resources.alembic_ini()))
    try:
        with engine.connect().execution_options(isolation_level="SERIALIZABLE") as connection:
            config.attributes["connection"] = connection
            with pytest.raises(PgflowMigrateError, match="is not READ COMMITTED READ WRITE"):
                command.upgrade(config, "core_0_16_0")
    finally:
        engine.dispose()


def test_an_unknown_target_is_one_sentence(database_at: Callable[[str], str], unchanged: Unchanged) -> None:
    dsn = database_at("core_0_15_0")
    with unchanged(dsn), pytest.raises(PgflowMigrateError) as caught:
        upgrade(dsn, "nonsense")
    assert caught.value.message == "Can't locate revision identified by 'nonsense'."


# What no preflight can foresee: somebody's event trigger objects.
NO_INDEXES = """
  create function public.no_indexes() returns event_trigger language plpgsql as
    'begin raise exception ''no indexes on Fridays''; end';
  create event trigger no_indexes on ddl_command_start when tag in ('CREATE INDEX')
    execute function public.no_indexes();
"""


def test_a_failing_file_is_named_with_its_revision(
    database_at: Callable[[str], str], unchanged: Unchanged
) -> None:
    dsn = database_at("core_0_15_0")
    execute(dsn, NO_INDEXES)
    with unchanged(dsn), pytest.raises(PgflowMigrateError) as caught:
        upgrade(dsn)
    assert caught.value.message == (
        "The upgrade failed (queue_identity/slug_rules.sql): no indexes on Fridays (SQLSTATE P0001)."
    )
    assert caught.value.remedy == "The database is unchanged."


def test_without_pgmq_it_is_refused(database_at: Callable[[str], str], unchanged: Unchanged) -> None:
    dsn = database_at("core_0_16_0")
    execute(dsn, "drop extension if exists pgmq cascade")
    execute(dsn, "drop schema if exists pgmq cascade")
    with unchanged(dsn), pytest.raises(BlockedError) as caught:
        upgrade(dsn)
    assert caught.value.exit_code == EXIT_BLOCKED
    assert [finding.code for finding in caught.value.findings] == ["pgmq-absent"]
    assert caught.value.message == "The preflight refuses: 1 finding stands in the way of queue identity."
