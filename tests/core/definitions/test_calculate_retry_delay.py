"""``pgflow.calculate_retry_delay(base_delay, attempts_count)``: seconds until the next attempt."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest


@pytest.mark.parametrize(
    ("base_delay", "attempts", "seconds"),
    [
        (5, 1, 10),
        (5, 2, 20),
        (5, 3, 40),
        (1.5, 1, 3),
        (1.5, 0, 1),  # rounded down
        (0.9, 0, 0),
        (0, 9, 0),
        (1, 0, 1),
        (1, 30, 1073741824),  # no cap
    ],
)
def test_doubles_the_base_delay_with_each_attempt(
    value: Callable[..., Any], base_delay: float, attempts: int, seconds: int
) -> None:
    assert value("select pgflow.calculate_retry_delay(%s::numeric, %s)", base_delay, attempts) == seconds


@pytest.mark.parametrize(("base_delay", "attempts"), [(1, 31), (2147483647, 1)])
def test_raises_when_the_delay_does_not_fit_an_integer(
    refused: Callable[..., psycopg.Error], base_delay: int, attempts: int
) -> None:
    error = refused("select pgflow.calculate_retry_delay(%s::numeric, %s)", base_delay, attempts)
    assert error.sqlstate == "22003"
