"""Defaults from a file and from the environment, for what one would otherwise repeat.

An option on the command line wins, then the environment, then the file, then the command's own default.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pgflow_migrate.cli.options import DsnOption, NeededDsnOption, OneCallOption, remember_configuration
from pgflow_migrate.errors import PgflowMigrateError

OWN = "pgflow-migrate.toml"
SHARED = "pyproject.toml"
TABLE = "pgflow-migrate"  # below [tool]
PREFIX = "PGFLOW_MIGRATE"

_ROOTS = (".git", ".hg", ".jj")
_CONNECTIONS = ("PGFLOW_DSN", "DATABASE_URL")  # pgflow_migrate.dsn has them, which costs the import of libpq
_SECRETS = ("password", "sslpassword", "oauth_client_secret")
_META = "pgflow_migrate.config"


class ConfigError(PgflowMigrateError):
    """A configuration file cannot be used."""


@dataclass(frozen=True)
class Config:
    """A configuration file.

    Attributes:
        path: where it is.
        table: what it says to this program: a table for each command, and what is for all of them.
    """

    path: Path
    table: Mapping[str, Any]


def find(folder: Path) -> Config | None:
    """The file that is nearest to ``folder``: in it, or above it up to the root of its repository.

    Outside any repository only ``folder`` itself counts: what lies further up may be anybody's.

    Raises:
        ConfigError: it is there and cannot be read.
    """
    for candidate in _folders(folder):
        for name in (OWN, SHARED):
            path = candidate / name
            if path.is_file():
                found = _read(path, required=False)
                if found is not None:
                    return found
    return None


def _folders(folder: Path) -> list[Path]:
    folders = [folder, *folder.parents]
    for number, candidate in enumerate(folders, 1):
        if any((candidate / root).exists() for root in _ROOTS):
            return folders[:number]
    return [folder]


def read(path: Path) -> Config:
    """The file that was named.

    Raises:
        ConfigError: it cannot be read, is no TOML, or is a pyproject.toml without our table.
    """
    found = _read(path, required=True)
    if found is None:
        raise ConfigError(f"{path} has no table [tool.{TABLE}].", f"Add one, or name a {OWN}.")
    return found


def _read(path: Path, *, required: bool) -> Config | None:
    """The file; None for a pyproject.toml that does not speak of us."""
    shared = path.name == SHARED
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        if shared and not required:
            return None  # somebody else's
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"The configuration file {path} cannot be read: {why}.", "Mend it, or name another with --config."
        ) from error
    if shared and TABLE not in text:
        return None
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(
            f"The configuration file {path} is not TOML: {error}.", "Mend it, or name another with --config."
        ) from error
    if not shared:
        return Config(path, document)
    table = document.get("tool", {}).get(TABLE)
    if table is not None and not isinstance(table, dict):
        raise ConfigError(f"tool.{TABLE} in {path} is not a table.", f"Write [tool.{TABLE}].")
    return None if table is None else Config(path, table)


def apply(ctx: click.Context, config: Config, command: click.Command) -> None:
    """Make the file's values defaults of ``command``, and of the options of the program itself.

    All of the file is checked, also what is for other commands.

    Args:
        ctx: the program's own.
        config: the file.
        command: what is about to run.

    Raises:
        ConfigError: a key or a value in it is wrong, or a secret.
    """
    ctx.meta[_META] = config
    remember_configuration(ctx, config.path)
    values = dict(config.table)
    shared_dsn = values.pop("dsn", None)
    if shared_dsn is not None:
        _check_value(config, "dsn", shared_dsn)
    defaults = _defaults(ctx, config, ctx.command, values, ())
    if any(os.environ.get(name) for name in _CONNECTIONS):
        shared_dsn = None
    if shared_dsn is not None and command.name is not None:
        defaults[command.name] = _with_dsn(ctx, command, defaults.get(command.name, {}), shared_dsn)
    ctx.default_map = defaults


def _defaults(
    ctx: click.Context,
    config: Config,
    command: click.Command,
    table: Mapping[str, Any],
    above: tuple[str, ...],
) -> dict[str, Any]:
    """A table of the file as click wants it: by parameter, and below that by command."""
    done: dict[str, Any] = {}
    options = dict(_options(command))
    for key, value in table.items():
        name = ".".join((*above, key))
        if isinstance(command, click.Group) and key in command.list_commands(ctx):
            if not isinstance(value, dict):
                raise ConfigError(
                    f"{config.path}: {name} is a command, and so has to be a table.", f"Write [{name}]."
                )
            below = command.get_command(ctx, key)
            if below is not None:
                done[key] = _defaults(ctx, config, below, value, (*above, key))
            continue
        option = options.get(key)
        if option is None:
            known = [*options, *(command.list_commands(ctx) if isinstance(command, click.Group) else ())]
            raise ConfigError(f'{config.path}: there is no key "{name}".', _remedy(key, known, above))
        if option.is_flag or isinstance(option, OneCallOption) or key in ("config", "help", "version"):
            raise ConfigError(
                f"{config.path}: --{key} is for one call, and {name} not for a file.",
                f"Take it out, and give --{key} on the command line.",
            )
        if option.multiple and not isinstance(option, DsnOption):
            done[option.name or ""] = _several(config, name, value)
            continue
        _check_value(config, name, value)
        if key == "dsn" and any(os.environ.get(variable) for variable in _CONNECTIONS):
            continue
        if isinstance(option.type, (click.Path, click.File)):
            value = str(config.path.parent / str(value))
        if option.name is not None:
            done[option.name] = (value,) if option.multiple else value
    return done


def _options(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    """A command's options by the names that a person writes, without the dashes."""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield max(parameter.opts, key=len).lstrip("-"), parameter


def _remedy(key: str, known: list[str], above: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(key.replace("_", "-"), known, 1, 0.6)
    if close:
        return f'Did you mean "{".".join((*above, close[0]))}"?'
    return f"pgflow-migrate {' '.join((*above, '--help'))} has the names."


def _check_value(config: Config, name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ConfigError(f"{config.path}: {name} is neither text nor a number.", "Write it in quotes.")
    text = str(value)
    is_dsn = name.split(".")[-1] == "dsn"
    if not is_dsn and "://" not in text and "=" not in text:
        return
    from pgflow_migrate.dsn import parse

    try:
        parameters = parse(text)
    except PgflowMigrateError as error:
        if is_dsn:
            raise ConfigError(f"{config.path}: {name}: {error.message}", error.remedy) from None
        return
    if any(parameters.get(secret) for secret in _SECRETS):
        raise ConfigError(
            f"{config.path}: {name} holds a password, which is not for a file that others read.",
            "Take it out: use service=NAME and ~/.pg_service.conf, ~/.pgpass, or PGFLOW_DSN.",
        )


def _several(config: Config, name: str, value: Any) -> tuple[Any, ...]:
    """The values of an option that may be repeated; one alone needs no brackets."""
    values = tuple(value) if isinstance(value, list) else (value,)
    for one in values:
        _check_value(config, name, one)
    return values


def _with_dsn(
    ctx: click.Context, command: click.Command, defaults: Mapping[str, Any], dsn: str
) -> dict[str, Any]:
    """``defaults`` with the connection that is for every command that needs one."""
    done = dict(defaults)
    if any(isinstance(option, NeededDsnOption) for _, option in _options(command)):
        done.setdefault("dsn", (dsn,))
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            if below is not None:
                done[name] = _with_dsn(ctx, below, done.get(name, {}), dsn)
    return done


def name_origin(error: click.BadParameter) -> None:
    """Let the error for a value that click refuses name the variable that it came from, if it did."""
    if error.ctx is None or error.param is None or error.param.name is None:
        return
    if error.ctx.get_parameter_source(error.param.name) is not ParameterSource.ENVIRONMENT:
        return
    names = [error.param.envvar] if isinstance(error.param.envvar, str) else error.param.envvar or ()
    name = next((name for name in names if os.environ.get(name)), None)
    if name is not None:
        error.param_hint = f"{name} (for '{max(error.param.opts, key=len)}')"


def explain(ctx: click.Context, error: click.BadParameter) -> ConfigError | None:
    """The error for a value that click refuses, if it is the file that has it."""
    config: Config | None = ctx.meta.get(_META)
    if config is None or error.ctx is None or error.param is None or error.param.name is None:
        return None
    if error.ctx.get_parameter_source(error.param.name) is not ParameterSource.DEFAULT_MAP:
        return None
    name = max(error.param.opts, key=len).lstrip("-")
    table = error.ctx.command_path.partition(" ")[2].replace(" ", ".")
    text = " ".join(error.message.split()).rstrip(".")
    key = name if name not in config.table.get(table, {}) and name == "dsn" else f"{table}.{name}"
    return ConfigError(f"{config.path}: {key} cannot be used: {text}.", "Mend it.")


def name_variables(command: click.Command, prefix: str) -> None:
    """Let each option be set by the environment: ``PGFLOW_MIGRATE_UPGRADE_MAX_WAIT`` is upgrade's --max-wait.

    click's own ``auto_envvar_prefix`` names them after parameters, which are not always what the options are
    called.

    Args:
        command: the command; those below it are done, too.
        prefix: what its variables begin with.
    """
    for name, option in _options(command):
        variable = f"{prefix}_{_upper(name)}"
        others = [option.envvar] if isinstance(option.envvar, str) else list(option.envvar or ())
        if variable not in others:
            option.envvar = [variable, *others]
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            name_variables(below, f"{prefix}_{_upper(name)}")


def _upper(name: str) -> str:
    return re.sub(r"\W", "_", name).upper()
