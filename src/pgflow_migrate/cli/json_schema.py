"""``--json-schema``: what ``--format json`` prints, described for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from pgflow_migrate.cli import output

_Command = TypeVar("_Command", bound=Callable[..., Any])


def json_schema_option(command: _Command) -> _Command:
    """The option; it prints ``schemas/<command>.schema.json`` and ends the command, before all else."""

    def show(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        if value:
            from pgflow_migrate import resources

            text = resources.schema(ctx.command.name or "").read_text(encoding="utf-8")
            output.echo(text, nl=False)
            ctx.exit()

    return click.option(
        "--json-schema",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Print the JSON Schema of --format json, and do nothing else.",
    )(command)
