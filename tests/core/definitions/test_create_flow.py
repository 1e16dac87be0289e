"""``pgflow.create_flow(flow_slug, max_attempts, base_delay, timeout)``: the flow's row and its queue."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[dict[str, Any]]

OPTIONS = ("opt_max_attempts", "opt_base_delay", "opt_timeout")


def options(flow: dict[str, Any]) -> tuple[int, ...]:
    return tuple(flow[name] for name in OPTIONS)


@pytest.mark.parametrize(
    "call",
    ["create_flow('f')", "create_flow('f', null, null, null)", "create_flow(flow_slug => 'f')"],
)
def test_defaults_are_three_attempts_five_seconds_delay_and_sixty_seconds_timeout(
    row: Callable[..., dict[str, Any]], call: str
) -> None:
    assert options(row(f"select * from pgflow.{call}")) == (3, 5, 60)


def test_given_options_are_stored_and_the_new_row_is_returned(row: Callable[..., dict[str, Any]]) -> None:
    returned = row("select * from pgflow.create_flow('f', max_attempts => 0, base_delay => 0, timeout => 1)")
    assert returned == row("select * from pgflow.flows")
    assert list(returned) == ["flow_slug", *OPTIONS, "created_at"]
    assert returned["flow_slug"] == "f"
    assert options(returned) == (0, 0, 1)
    assert returned["created_at"] == row("select now()")["now"]


def test_slugs_keep_their_spelling(value: Callable[..., Any]) -> None:
    assert value("select (pgflow.create_flow('camelCase')).flow_slug") == "camelCase"
    assert value("select queue_name from pgmq.list_queues()") == "camelCase"


def test_a_second_call_returns_the_row_as_it_was_and_changes_nothing(
    db: Connection, row: Callable[..., dict[str, Any]], state_of: Callable[[Connection], object]
) -> None:
    first = row("select * from pgflow.create_flow('f', 1, 2, 3)")
    before = state_of(db)
    assert row("select * from pgflow.create_flow('f', 7, 8, 9)") == first
    assert row("select * from pgflow.create_flow('f')") == first
    assert state_of(db) == before


def test_creates_the_queue_and_its_archive(value: Callable[..., Any]) -> None:
    value("select pgflow.create_flow('f')")
    assert value("select queue_name from pgmq.list_queues()") == "f"
    assert value("select count(*) from pgmq.q_f") == 0
    assert value("select count(*) from pgmq.a_f") == 0


def test_a_queue_that_is_listed_already_is_kept_with_its_messages(value: Callable[..., Any]) -> None:
    value("select pgmq.create('f')")
    value("select pgmq.send('f', '{}'::jsonb)")
    value("select pgflow.create_flow('f')")
    assert value("select count(*) from pgmq.q_f") == 1
    assert value("select count(*) from pgmq.list_queues()") == 1


def test_a_missing_queue_of_an_existing_flow_is_made_again(value: Callable[..., Any]) -> None:
    value("select pgflow.create_flow('f')")
    value("select pgmq.drop_queue('f')")
    value("select pgflow.create_flow('f')")
    assert value("select queue_name from pgmq.list_queues()") == "f"
    assert value("select count(*) from pgmq.q_f") == 0


def test_a_queue_listed_in_another_spelling_does_not_count(
    rows: Callable[..., list[dict[str, Any]]], value: Callable[..., Any]
) -> None:
    value("select pgmq.create('orders')")
    value("select pgflow.create_flow('Orders')")
    listed = rows('select queue_name from pgmq.list_queues() order by queue_name collate "C"')
    assert [queue["queue_name"] for queue in listed] == ["Orders", "orders"]


@pytest.mark.parametrize("slug", ["run", "", "1st", "with-dash", "with blank", "a" * 129])
def test_an_invalid_or_reserved_slug_is_refused(refused: Callable[..., psycopg.Error], slug: str) -> None:
    error = refused("select pgflow.create_flow(%s)", slug)
    assert error.sqlstate == "23514"
    assert error.diag.message_primary == (
        'new row for relation "flows" violates check constraint "slug_is_valid"'
    )


def test_a_null_slug_is_refused(refused: Callable[..., psycopg.Error]) -> None:
    error = refused("select pgflow.create_flow(null)")
    assert (error.sqlstate, error.diag.column_name) == ("23502", "flow_slug")


BAD_OPTIONS = [
    ("max_attempts => -1", "opt_max_attempts_is_nonnegative"),
    ("base_delay => -1", "opt_base_delay_is_nonnegative"),
    ("timeout => 0", "opt_timeout_is_positive"),
    ("timeout => -1", "opt_timeout_is_positive"),
]


@pytest.mark.parametrize(("option", "constraint"), BAD_OPTIONS)
def test_an_option_out_of_range_is_refused(
    violates: Callable[..., tuple[str, str]], option: str, constraint: str
) -> None:
    assert violates(f"select pgflow.create_flow('f', {option})") == ("23514", constraint)


@pytest.mark.parametrize(("option", "constraint"), BAD_OPTIONS)
def test_an_option_out_of_range_is_refused_also_when_the_flow_exists(
    value: Callable[..., Any], violates: Callable[..., tuple[str, str]], option: str, constraint: str
) -> None:
    value("select pgflow.create_flow('f')")
    assert violates(f"select pgflow.create_flow('f', {option})") == ("23514", constraint)


def test_a_slug_of_47_characters_is_the_longest_with_a_queue(value: Callable[..., Any]) -> None:
    value("select pgflow.create_flow(%s)", "a" * 47)
    assert value("select queue_name from pgmq.list_queues()") == "a" * 47


@pytest.mark.parametrize("length", [48, 128])
def test_a_longer_valid_slug_is_refused_by_pgmq(refused: Callable[..., psycopg.Error], length: int) -> None:
    error = refused("select pgflow.create_flow(%s)", "a" * length)
    assert error.sqlstate == "P0001"
    # PGMQ 1.5.1 says 48, later releases 47; both accept 47.
    assert error.diag.message_primary in {
        f"queue name is too long, maximum length is {limit} characters" for limit in (47, 48)
    }


def test_a_concurrent_creation_waits_and_then_finds_the_flow(
    release: str,
    database_at: Callable[[str], str],
    connect: Callable[[str], Connection],
    in_background: Callable[..., Future[list[dict[str, Any]]]],
    until_waiting: Callable[..., str],
) -> None:
    dsn = database_at(release)
    first, second, observer = connect(dsn), connect(dsn), connect(dsn)
    with first.transaction():
        first.execute("select pgflow.create_flow('f', 1, 2, 3)")
        pending = in_background(second, "select * from pgflow.create_flow('f', 7, 8, 9)")
        assert until_waiting(observer, second) == "transactionid"
    assert [options(flow) for flow in pending.result(20)] == [(1, 2, 3)]
    assert observer.execute("select count(*) from pgflow.flows").fetchone() == {"count": 1}
    assert observer.execute("select queue_name from pgmq.list_queues()").fetchall() == [{"queue_name": "f"}]


def test_a_concurrent_creation_goes_on_when_the_first_is_rolled_back(
    release: str,
    database_at: Callable[[str], str],
    connect: Callable[[str], Connection],
    in_background: Callable[..., Future[list[dict[str, Any]]]],
    until_waiting: Callable[..., str],
) -> None:
    dsn = database_at(release)
    first, second, observer = connect(dsn), connect(dsn), connect(dsn)
    with first.transaction(force_rollback=True):
        first.execute("select pgflow.create_flow('f', 1, 2, 3)")
        pending = in_background(second, "select * from pgflow.create_flow('f', 7, 8, 9)")
        assert until_waiting(observer, second) == "transactionid"
    assert [options(flow) for flow in pending.result(20)] == [(7, 8, 9)]
    assert observer.execute("select queue_name from pgmq.list_queues()").fetchall() == [{"queue_name": "f"}]


def test_an_existing_row_is_locked_as_by_an_update_until_the_transaction_ends(
    release: str, database_at: Callable[[str], str], connect: Callable[[str], Connection]
) -> None:
    dsn = database_at(release)
    first, second = connect(dsn), connect(dsn)
    first.execute("select pgflow.create_flow('f')")
    with first.transaction():
        first.execute("select pgflow.create_flow('f')")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            second.execute("select from pgflow.flows for no key update nowait")
    assert len(second.execute("select from pgflow.flows for no key update nowait").fetchall()) == 1
