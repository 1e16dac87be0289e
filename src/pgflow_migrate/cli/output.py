"""What commands print: one JSON document or a table on stdout, everything else on stderr."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console

_FORMAT = "pgflow_migrate.format"


def remember_format(ctx: click.Context, value: str) -> None:
    """Note the chosen ``--format``, so that an error is shown in it too."""
    ctx.meta[_FORMAT] = value


def chosen_format(ctx: click.Context) -> str | None:
    """The ``--format`` of the command that runs, or None before it is known."""
    value: str | None = ctx.meta.get(_FORMAT)
    return value


def print_json(document: Any) -> None:
    """Print one JSON document on stdout; dataclasses, dates and tuples are fine (see :func:`plain`)."""
    click.echo(json.dumps(plain(document), indent=2, ensure_ascii=False))


def plain(value: Any) -> Any:
    """``value`` in JSON's own types: dataclasses as objects, dates in ISO 8601, durations in seconds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value


def colour() -> bool | None:
    """For click: False when NO_COLOR is set, else None, which means colour on a terminal only."""
    return False if os.environ.get("NO_COLOR") else None


def console(*, stderr: bool = False) -> Console:
    """A rich console; it has colours on a terminal only, and never with NO_COLOR."""
    from rich.console import Console

    return Console(file=sys.stderr if stderr else sys.stdout, highlight=False, soft_wrap=False)
