"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from pgflow_migrate import durations
from pgflow_migrate.cli import output

if TYPE_CHECKING:
    _DurationType = click.ParamType[timedelta]
    _TextType = click.ParamType[str]
else:
    _DurationType = _TextType = click.ParamType  # generic in newer versions of click only

_CONFIGURATION = "pgflow_migrate.configuration"

_Command = TypeVar("_Command", bound=Callable[..., Any])


class OneCallOption(click.Option):
    """An option that belongs on the command line: a file could switch it on, and nothing off again."""


class Whole(_TextType):
    """A text with blanks, such as a connection string, for an option that may be repeated."""

    name = "text"

    def split_envvar_value(self, rv: str) -> list[str]:
        """A variable holds one."""
        return [rv]


def once(instead: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], str | None]:
    """The callback of an option with ``multiple`` of which there is to be one: the last would win silently.

    Args:
        instead: what to do who means several.
    """

    def only(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> str | None:
        if len(values) > 1:
            raise click.BadParameter(f"given {len(values)} times. {instead}", ctx, parameter)
        return values[0] if values else None

    return only


class DsnOption(click.Option):
    """``--dsn``, once: two would be two databases, of which the last would win silently."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        own = {
            "metavar": "DSN",
            "multiple": True,
            "type": Whole(),
            "callback": once("Run the command once for each database."),
        }
        super().__init__(*arguments, **(attributes | own))


class NeededDsnOption(DsnOption):
    """The connection of a command that cannot do without one: ``dsn`` at the top of a file is for it, too."""


class Group(click.Group):
    """A group that says more of commands which one could expect in it than that there are none.

    Attributes:
        missing: by name, what there is instead: a sentence or two.
    """

    missing: Mapping[str, str] = {}

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command; without a suggestion of the nearest name for what is :attr:`missing`."""
        if args[0] in self.missing and not ctx.resilient_parsing:
            raise click.UsageError(f"No such command '{args[0]}'. {self.missing[args[0]]}", ctx)
        return super().resolve_command(ctx, args)


def given(ctx: click.Context, *names: str) -> bool:
    """Whether any of these parameters was given on the command line, and not by a file or the environment."""
    return any(ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE for name in names)


def dsn_option(command: _Command) -> _Command:
    """``--dsn``; the function gets ``dsn``, the string as given or None: hand it to :func:`target_of`."""
    return click.option(
        "--dsn",
        cls=NeededDsnOption,
        help="Connection string; default: PGFLOW_DSN, else DATABASE_URL, else libpq's variables.",
    )(command)


def target_of(dsn: str | None) -> str:
    """The connection string to use: ``dsn``, else the environment's; says so when it is a file's.

    A program that reads JSON is told nothing: it does not wonder which database it is talking to.

    Args:
        dsn: the running command's ``--dsn``.

    Raises:
        PgflowMigrateError: it is no connection string.
    """
    from pgflow_migrate.database import resolve_dsn

    ctx = click.get_current_context()
    found = configuration(ctx)
    if (
        found is not None
        and ctx.get_parameter_source("dsn") is ParameterSource.DEFAULT_MAP
        and output.chosen_format(ctx) != "json"
    ):
        output.echo(f"The connection is that of {found}.", err=True)
    return resolve_dsn(dsn, os.environ)


def remember_configuration(ctx: click.Context, path: Path) -> None:
    """Note the file that defaults came from."""
    ctx.meta[_CONFIGURATION] = path


def configuration(ctx: click.Context) -> Path | None:
    """The file that defaults came from, if there is one."""
    path: Path | None = ctx.meta.get(_CONFIGURATION)
    return path


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
        """Read ``value``; see :func:`pgflow_migrate.durations.parse`."""
        if isinstance(value, timedelta):
            return value
        try:
            return durations.parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
