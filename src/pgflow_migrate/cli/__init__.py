"""The command line: a command a module, imported when it is called; errors are caught here alone."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from pgflow_migrate import __version__
from pgflow_migrate.cli import config, failures, options, output, signals

# Command, its module, and the first paragraph of its help, which must not cost the import of all of them.
COMMANDS = {
    "audit": ("cmd_audit", "Report what stands in the way of the upgrade; changes nothing."),
    "upgrade": ("cmd_upgrade", "Upgrade a database to the newest revision, in one transaction."),
    "status": ("cmd_status", "Show release, revisions, what goes on, and what to do next; changes nothing."),
    "verify": ("cmd_verify", "Check every invariant of an upgraded database; changes nothing."),
    "prune-helper": (
        "cmd_prune_helper",
        "Say which pruning helper is installed, and what to do; changes nothing.",
    ),
    "worker": ("cmd_worker", "Work off the queue of one flow with handlers written in Python."),
    "dirty-runs": (
        "cmd_dirty_runs",
        "Look at runs of the internal protocol 2, reconcile one of them, print its contract.",
    ),
    "work-center": (
        "cmd_work_center",
        "Upgrade, show and verify the SQLite store of the Work Center program.",
    ),
    "export": (
        "cmd_export",
        "Copy pgflow's rows and its queues into a file, for replay --from; changes nothing.",
    ),
    "replay": (
        "cmd_replay",
        "Take populated old databases through audit and upgrade, and compare with what must come of them.",
    ),
    "demo": (
        "cmd_demo",
        "Show audit and upgrade on an embedded PostgreSQL, and check by SQL what they promise.",
    ),
    "docs": ("cmd_docs", "List the pages of the documentation, or print one of them."),
}

EPILOG = """\b
Exit codes:
  0  done, or clean
  1  could not run: connection, rights, unknown release, broken input, interrupted
  2  usage
  3  blocked: findings, violations, a refusal, a failed scenario
  4  the locks were not obtained in time; nothing changed, safe to repeat

\b
Connection: --dsn, else PGFLOW_DSN, else DATABASE_URL, else libpq's variables.

\b
Every option: the command line, else PGFLOW_MIGRATE_<COMMAND>_<OPTION>, else
pgflow-migrate.toml or [tool.pgflow-migrate] in pyproject.toml (pgflow-migrate docs configuration).

\b
For example:
  pgflow-migrate audit --dsn service=production
  pgflow-migrate --log-format json upgrade --max-wait 2min 2> upgrade.log
  pgflow-migrate status --watch

\b
Completion, for the shell's start-up file (also zsh_source, fish_source; others: docs configuration):
  eval "$(_PGFLOW_MIGRATE_COMPLETE=bash_source pgflow-migrate)"
"""


LOG_FORMATS = ("text", "json")


class Toolkit(options.Group):
    """A group that imports a command's module only to run it."""

    missing = {
        "downgrade": "From dirty_runs back to queue identity: alembic … downgrade queue_identity, which"
        " pgflow-migrate docs upgrade shows in full (Going back). Further back there is the backup alone."
    }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of a person's work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, from its own module."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"pgflow_migrate.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        config.name_variables(command, f"{config.PREFIX}_{cmd_name.replace('-', '_').upper()}")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command, with the defaults of the configuration file; help and docs can do without."""
        name, command, rest = super().resolve_command(ctx, args)
        only_reads = name == "docs" or {"-h", "--help"} & set(rest)
        if command is not None and not ctx.resilient_parsing and not only_reads:
            _configure(ctx, command)
        return name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The overview, from :data:`COMMANDS` alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The program's own options; ``--version`` prints here already."""
        with _told(ctx):
            return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn what it raises into words and an exit code."""
        ctx.with_resource(output.stderr_as(ctx.params.get("log_format", "text")))
        with _told(ctx), signals.as_interrupt():
            return super().invoke(ctx)


@contextlib.contextmanager
def _told(ctx: click.Context) -> Iterator[None]:
    """Within it, what is raised becomes words and an exit code."""
    try:
        yield
    except (click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except output.ReaderGoneError as error:
        ctx.exit(failures.show(ctx, error) if output.has_changed(ctx) else error.exit_code)
    except click.FileError as error:
        ctx.exit(failures.show(ctx, failures.of_file(error)))
    except click.ClickException as error:
        failures.hide_secrets(error)
        if isinstance(error, click.BadParameter):
            config.name_origin(error)
            told = config.explain(ctx, error)
            if told is not None:
                ctx.exit(failures.show(ctx, told))
        if output.stderr_is_json():
            ctx.exit(failures.show_usage(error))
        raise
    except (Exception, KeyboardInterrupt) as error:
        ctx.exit(failures.show(ctx, error))


def _configure(ctx: click.Context, command: click.Command) -> None:
    try:
        named: Path | None = ctx.params.get("config_file")
        found = config.read(named) if named is not None else config.find(Path.cwd())
    except FileNotFoundError:
        return  # the working folder has been deleted
    if found is None:
        return
    config.apply(ctx, found, command)
    format_ = (ctx.default_map or {}).get("log_format")
    if format_ is not None and ctx.get_parameter_source("log_format") is ParameterSource.DEFAULT:
        if format_ not in LOG_FORMATS:
            raise config.ConfigError(
                f"{found.path}: log-format is {format_!r}.", f"Write one of {', '.join(LOG_FORMATS)}."
            )
        ctx.with_resource(output.stderr_as(format_))
    if ctx.params.get("debug"):
        output.echo(f"Configuration: {found.path}", err=True, level="debug")


def _show_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    from pgflow_migrate.cli import versions

    output.echo(f"pgflow-migrate, version {__version__}")
    output.print_rows((part.name, part.version) for part in versions.parts())
    ctx.exit()


@click.group(cls=Toolkit, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    envvar=f"{config.PREFIX}_CONFIG",
    metavar="FILE",
    help="Read defaults from this file instead of looking for one.",
)
@click.option(
    "--log-format",
    type=click.Choice(LOG_FORMATS),
    default="text",
    show_default=True,
    envvar=f"{config.PREFIX}_LOG_FORMAT",
    help="What goes to stderr: text for people, or a JSON object a line.",
)
@click.option(
    "--debug",
    is_flag=True,
    envvar=f"{config.PREFIX}_DEBUG",
    help="On an error show the traceback as well.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the versions of all parts, and exit.",
)
def main(config_file: Path | None, log_format: str, debug: bool) -> None:
    """Audit and upgrade databases of pgflow, the workflow engine inside PostgreSQL."""
