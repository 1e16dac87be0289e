"""How the upgrade waits, as its settings."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from psycopg.rows import tuple_row

from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.servers import Server
from pgflow_migrate.upgrade.session import AMONG_WORKERS, Fence, prepare, script

SETTINGS = ("lock_timeout", "pgflow_migrate.lock_timeout", "pgflow_migrate.max_wait")
WORKERS = "pgflow_migrate.allow_live_workers"


def test_it_waits_five_seconds_for_a_lock_and_thirty_in_all_and_for_workers_to_end() -> None:
    assert Fence() == Fence(timedelta(seconds=5), timedelta(seconds=30), allow_live_workers=False)
    assert Fence(timedelta(seconds=5), timedelta(seconds=30), allow_live_workers=True) == AMONG_WORKERS


@pytest.mark.parametrize(
    ("fence", "settings"),
    [
        (Fence(), ["5s", "5000ms", "30000ms", "off"]),
        (AMONG_WORKERS, ["5s", "5000ms", "30000ms", "on"]),
        (Fence(timedelta(milliseconds=1.5), timedelta(seconds=0.25)), ["2ms", "2ms", "250ms", "off"]),
    ],
)
def test_the_settings_are_of_the_transaction_alone(
    database_at: Callable[[str], str], fence: Fence, settings: list[str]
) -> None:
    with psycopg.connect(database_at(""), row_factory=tuple_row) as connection:
        prepare(connection, fence, lambda event: None)
        names = (*SETTINGS, WORKERS)
        shown = [connection.execute(f"show {name}".encode()).fetchall()[0][0] for name in names]
        assert shown == settings
        connection.rollback()
        assert connection.execute("show lock_timeout").fetchall() == [("0",)]
        assert connection.execute(f"select current_setting('{WORKERS}', true)".encode()).fetchall() == [("",)]


@pytest.mark.parametrize(
    ("options", "mode", "message"),
    [
        (
            "-c default_transaction_read_only=on",
            "",
            "default_transaction_read_only is on here (client): this database is not to be changed.",
        ),
        ("", "read only", "The connection's transaction is not READ COMMITTED READ WRITE."),
        (
            "",
            "isolation level repeatable read",
            "The connection's transaction is not READ COMMITTED READ WRITE.",
        ),
    ],
    ids=["read-only by default", "read-only", "repeatable read"],
)
def test_a_transaction_that_will_not_do_is_refused(
    server: Server, options: str, mode: str, message: str
) -> None:
    with psycopg.connect(server.admin_dsn, options=options) as connection:
        if mode:
            connection.execute(f"set transaction {mode}".encode())
        with pytest.raises(PgflowMigrateError) as caught:
            prepare(connection, Fence(), lambda event: None)
    assert caught.value.message == message


def test_a_script_begins_with_the_same_settings() -> None:
    text = script(Fence(timedelta(seconds=1.5), timedelta(seconds=20), allow_live_workers=True))
    assert text.startswith("set transaction isolation level read committed;\n")
    assert text.count("'1500ms'") == 2
    assert "set_config('pgflow_migrate.max_wait', '20000ms', true)" in text
    assert "set_config('pgflow_migrate.allow_live_workers', 'on', true)" in text
