"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pgflow_migrate.cli import output

if TYPE_CHECKING:
    _DurationType = click.ParamType[timedelta]
else:
    _DurationType = click.ParamType  # generic in newer versions of click only

_Command = TypeVar("_Command", bound=Callable[..., Any])

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = timedelta(milliseconds=2**31 - 1)  # PostgreSQL's own limit for a timeout


def dsn_option(command: _Command) -> _Command:
    """``--dsn``; the function gets ``dsn``, the string as given or None: hand it to ``resolve_dsn``."""
    return click.option(
        "--dsn",
        metavar="DSN",
        help="Connection string; default: PGFLOW_DSN, else DATABASE_URL, else libpq's variables.",
    )(command)


def format_option(*choices: str) -> Callable[[_Command], _Command]:
    """``--format``, the first choice being the default; the function gets ``format_``."""

    def remember(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
        output.remember_format(ctx, value)
        return value

    return click.option(
        "--format",
        "format_",
        type=click.Choice(choices),
        default=choices[0],
        show_default=True,
        callback=remember,
        is_eager=True,
        help="How the result is printed on stdout.",
    )


class Duration(_DurationType):
    """A positive duration in PostgreSQL's units, such as 5s, 500ms or 2min, as a timedelta."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Read ``value``; a duration that PostgreSQL would take for "no limit" is refused."""
        if isinstance(value, timedelta):
            return value
        match = re.fullmatch(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([a-z]+)\s*", str(value))
        if not match or match[2] not in _SECONDS:
            self.fail(
                f"{value!r} is not a duration; write a number and one of {', '.join(_SECONDS)}.", param, ctx
            )
        seconds = float(match[1]) * _SECONDS[match[2]]
        if not 0.001 <= seconds <= _LONGEST.total_seconds():
            self.fail(f"{value!r} is out of range: from 1ms to {_LONGEST.days}d.", param, ctx)
        return timedelta(seconds=seconds)
