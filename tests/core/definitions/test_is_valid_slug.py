"""``pgflow.is_valid_slug(slug)`` of the releases before queue identity."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


@pytest.mark.parametrize(
    "slug",
    [
        "a",
        "_",
        "_leading",
        "trailing_",
        "double__underscore",
        "camelCase",
        "UPPER",
        "a1",
        "run_1",
        "running",
        "RUN",
        "a" * 128,
    ],
)
def test_accepts_letters_digits_and_underscores_that_do_not_begin_with_a_digit(
    value: Callable[..., Any], slug: str
) -> None:
    assert value("select pgflow.is_valid_slug(%s)", slug) is True


@pytest.mark.parametrize(
    "slug",
    [
        None,
        "",
        "1a",
        "with-dash",
        "with blank",
        " leading",
        "trailing ",
        "new\nline",
        "trailing_newline\n",
        "dot.ted",
        "é",
        "run",
        "a" * 129,
    ],
)
def test_refuses_everything_else_and_is_never_null(value: Callable[..., Any], slug: str | None) -> None:
    assert value("select pgflow.is_valid_slug(%s)", slug) is False
