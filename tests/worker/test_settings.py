"""Times and limits, and the waits between repetitions."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import psycopg
import pytest

from pgflow_migrate.worker import Settings
from pgflow_migrate.worker.retries import PASSING, Backoff, describe


def test_the_defaults_are_those_of_pgflows_own_worker() -> None:
    defaults = Settings()
    assert (defaults.visibility_timeout, defaults.batch_size) == (5, 10)
    assert (defaults.max_poll, defaults.poll_interval) == (2, 100)
    assert (defaults.concurrency, defaults.heartbeat_interval) == (10, 5.0)
    with pytest.raises(FrozenInstanceError):
        defaults.concurrency = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"max_poll": 0}, "max_poll is 0, which is not positive."),
        ({"until_idle": -1}, "until_idle is -1, which is not positive."),
        ({"concurrency": 1.5}, "concurrency is 1.5, which is not a whole number."),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        Settings(**settings)
    assert str(caught.value) == sentence


def test_waits_double_up_to_the_limit_and_begin_again_after_a_success() -> None:
    backoff = Backoff(0.1, 1.0, chance=lambda: 0.0)
    assert [backoff.next() for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.next() == 0.1


def test_a_wait_is_shortened_by_chance_by_up_to_a_half() -> None:
    assert Backoff(2.0, 8.0, chance=lambda: 0.5).next() == 1.5
    waits = [Backoff(2.0, 8.0).next() for _ in range(200)]
    assert 1.0 < min(waits) < max(waits) <= 2.0
    assert len(set(waits)) > 100


def test_waits_stay_at_the_limit_for_ever() -> None:
    backoff = Backoff(0.1, 30.0, chance=lambda: 0.0)
    assert [backoff.next() for _ in range(5000)][-1] == 30.0


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (psycopg.errors.DeadlockDetected, True),
        (psycopg.errors.SerializationFailure, True),
        (psycopg.errors.LockNotAvailable, True),
        (psycopg.errors.QueryCanceled, True),
        (psycopg.errors.AdminShutdown, True),
        (psycopg.errors.CannotConnectNow, True),
        (psycopg.errors.TooManyConnections, True),
        (psycopg.errors.DiskFull, True),
        (psycopg.errors.ReadOnlySqlTransaction, True),
        (psycopg.OperationalError, True),
        (psycopg.InterfaceError, True),
        (psycopg.errors.InvalidTextRepresentation, False),
        (psycopg.errors.UndefinedTable, False),
        (psycopg.errors.InsufficientPrivilege, False),
        (psycopg.errors.CheckViolation, False),
    ],
)
def test_which_errors_pass_by_themselves(error: type[psycopg.Error], passes: bool) -> None:
    assert issubclass(error, PASSING) is passes


def test_an_error_is_described_without_what_it_quotes_of_the_data(bench: Any) -> None:
    with pytest.raises(psycopg.Error) as caught:
        bench.rows("insert into pgflow.flows (flow_slug, opt_timeout) values ('quoted_secret', 0)")
    assert "quoted_secret" in str(caught.value)
    assert describe(caught.value) == (
        '23514 new row for relation "flows" violates check constraint "opt_timeout_is_positive"'
    )
    assert describe(psycopg.OperationalError("the connection\nis lost")) == "the connection is lost"
    assert describe(psycopg.OperationalError()) == "OperationalError"
