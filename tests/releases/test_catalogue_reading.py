"""Reading a catalogue needs no rights, changes nothing and does not depend on the session."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import psycopg
import pytest

from pgflow_migrate.releases import catalogue
from pgflow_migrate.releases.comparison import compare

Connection = psycopg.Connection[dict[str, object]]

SNAPSHOT = catalogue.snapshot("0.16.0")


@pytest.fixture
def dsn(database_at: Callable[[str], str]) -> str:
    """A database of 0.16.0."""
    return database_at("core_0_16_0")


def show(connection: psycopg.Connection[dict[str, object]], setting: str) -> object:
    """A setting's value in this session."""
    row = connection.execute("select current_setting(%s) as value", [setting]).fetchone()
    assert row is not None
    return row["value"]


def test_a_role_without_any_right_reads_the_same(dsn: str, connect: Callable[[str], Connection]) -> None:
    connection = connect(dsn)
    connection.execute("set role anon")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("select from pgflow.runs")

    actual = catalogue.read(connection)

    assert compare(SNAPSHOT, actual) == ()
    assert actual.sees_cron is False
    assert actual.objects == {n: a for n, a in SNAPSHOT.objects.items() if not n.startswith("cron job")}


def test_jobs_that_row_security_hides_are_not_called_missing(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    connection = connect(dsn)
    connection.execute("grant usage on schema cron to anon")
    connection.execute("set role anon")

    actual = catalogue.read(connection)

    assert actual.sees_cron is False
    assert [name for name in actual.objects if name.startswith("cron job")] == []
    assert compare(SNAPSHOT, actual) == ()


@pytest.mark.parametrize("search_path", ['""', "pgflow", "pgflow, cron, public", "public"])
def test_the_session_s_search_path_does_not_show(
    search_path: str, dsn: str, connect: Callable[[str], Connection]
) -> None:
    connection = connect(dsn)
    connection.execute("select set_config('search_path', %s, false)", [search_path])

    assert catalogue.read(connection).objects == SNAPSHOT.objects
    assert show(connection, "search_path") == search_path


def test_a_decoy_earlier_in_the_search_path_is_not_used(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    connection = connect(dsn)
    connection.execute(
        "create schema decoy; create view decoy.pg_class as select * from pg_catalog.pg_class where false;"
        "set search_path = decoy, pg_catalog"
    )
    assert catalogue.read(connection).objects == SNAPSHOT.objects


def test_a_caller_s_transaction_keeps_its_settings_and_its_work(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    connection = connect(dsn)
    with connection.transaction():
        connection.execute("create index runs_input on pgflow.runs (input)")
        connection.execute("set local search_path = pgflow")
        found = compare(SNAPSHOT, catalogue.read(connection))
        assert [str(difference) for difference in found] == [
            "index runs.runs_input is not part of the release"
        ]
        assert show(connection, "search_path") == "pgflow"
    assert len(compare(SNAPSHOT, catalogue.read(connection))) == 1


def test_no_transaction_stays_open(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        catalogue.read(connection)
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_a_read_only_session_suffices(dsn: str, connect: Callable[[str], Connection]) -> None:
    connection = connect(dsn)
    connection.execute("set default_transaction_read_only = on")
    assert catalogue.read(connection).objects == SNAPSHOT.objects


def test_a_catalogue_is_read_in_less_than_three_tenths_of_a_second(
    dsn: str, connect: Callable[[str], Connection]
) -> None:
    connection = connect(dsn)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        catalogue.read(connection)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.3


def test_the_command_prints_a_snapshot(dsn: str) -> None:
    command = [sys.executable, "-m", "pgflow_migrate.releases.catalogue", dsn]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout == SNAPSHOT.to_json()
