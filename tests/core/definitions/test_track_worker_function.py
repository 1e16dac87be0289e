"""``pgflow.track_worker_function(function_name, start_mode)``: what ``ensure_workers`` knows of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

Connection = psycopg.Connection[dict[str, Any]]

TRACKED = "select * from pgflow.worker_functions"


def test_a_new_function_is_enabled_and_started_by_http(
    row: Callable[..., dict[str, Any]], value: Callable[..., Any]
) -> None:
    value("select pgflow.track_worker_function('f')")
    tracked = row(TRACKED)
    now, clock = row("select now(), clock_timestamp()").values()
    assert now < tracked.pop("updated_at") < clock
    assert tracked == {
        "function_name": "f",
        "enabled": True,
        "debounce": timedelta(seconds=6),
        "last_invoked_at": None,
        "created_at": now,
        "start_mode": "http",
    }


def test_the_mode_of_a_new_function_can_be_given(
    row: Callable[..., dict[str, Any]], value: Callable[..., Any]
) -> None:
    value("select pgflow.track_worker_function(function_name => 'f', start_mode => 'process')")
    assert row(TRACKED)["start_mode"] == "process"


def test_a_known_function_gets_a_new_mode_and_time_and_keeps_the_rest(
    db: Connection, row: Callable[..., dict[str, Any]]
) -> None:
    db.execute(
        """
        insert into pgflow.worker_functions
          (function_name, enabled, debounce, last_invoked_at, created_at, updated_at)
        values ('f', false, '9 seconds', now() - interval '3 days',
          now() - interval '2 days', now() - interval '1 day')
        """
    )
    before = row(TRACKED)
    db.execute("select pgflow.track_worker_function('f', 'process')")
    after = row(TRACKED)
    now, clock = row("select now(), clock_timestamp()").values()
    assert now < after["updated_at"] < clock
    assert after == {**before, "start_mode": "process", "updated_at": after["updated_at"]}


def test_a_call_without_a_mode_sets_http_again(db: Connection, row: Callable[..., dict[str, Any]]) -> None:
    db.execute("select pgflow.track_worker_function('f', 'process')")
    db.execute("select pgflow.track_worker_function('f')")
    assert row(TRACKED)["start_mode"] == "http"


def test_other_functions_are_left_alone(db: Connection, rows: Callable[..., list[dict[str, Any]]]) -> None:
    db.execute("select pgflow.track_worker_function('f', 'process')")
    db.execute("select pgflow.track_worker_function('g')")
    modes = {tracked["function_name"]: tracked["start_mode"] for tracked in rows(TRACKED)}
    assert modes == {"f": "process", "g": "http"}


@pytest.mark.parametrize("known", [False, True])
def test_another_mode_is_refused(
    db: Connection, violates: Callable[..., tuple[str, str]], known: bool
) -> None:
    if known:
        db.execute("select pgflow.track_worker_function('f')")
    assert violates("select pgflow.track_worker_function('f', 'cron')") == (
        "23514",
        "worker_functions_start_mode_check",
    )


@pytest.mark.parametrize(
    ("arguments", "column"),
    [("null", "function_name"), ("null, 'http'", "function_name"), ("'f', null", "start_mode")],
)
def test_null_is_refused(refused: Callable[..., psycopg.Error], arguments: str, column: str) -> None:
    error = refused(f"select pgflow.track_worker_function({arguments})")
    assert (error.sqlstate, error.diag.column_name) == ("23502", column)
