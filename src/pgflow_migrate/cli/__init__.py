"""The command line: a command a module, imported when it is called; errors are caught here alone."""

from __future__ import annotations

import importlib
from typing import Any

import click

from pgflow_migrate import __version__
from pgflow_migrate.cli import failures, signals

# Command, its module, and the first paragraph of its help, which must not cost the import of all of them.
COMMANDS = {
    "audit": ("cmd_audit", "Report what stands in the way of the upgrade; changes nothing."),
    "upgrade": ("cmd_upgrade", "Upgrade a database to the newest revision, in one transaction."),
    "status": ("cmd_status", "Show release, revisions, server and rights; changes nothing."),
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
    "replay": (
        "cmd_replay",
        "Take populated old databases through audit and upgrade, and compare with what must come of them.",
    ),
    "demo": (
        "cmd_demo",
        "Show audit and upgrade on an embedded PostgreSQL, and check by SQL what they promise.",
    ),
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
Completion, for the shell's start-up file (also zsh_source, fish_source, powershell_source):
  eval "$(_PGFLOW_MIGRATE_COMPLETE=bash_source pgflow-migrate)"
"""


class Toolkit(click.Group):
    """A group that imports a command's module only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every command, in the order of a person's work."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, from its own module."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"pgflow_migrate.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The overview, from :data:`COMMANDS` alone."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn what it raises into words and an exit code."""
        try:
            with signals.as_interrupt():
                return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except (Exception, KeyboardInterrupt) as error:
            ctx.exit(failures.show(ctx, error))


@click.group(cls=Toolkit, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="On an error show the traceback as well.")
@click.version_option(__version__, prog_name="pgflow-migrate")
def main(debug: bool) -> None:
    """Audit and upgrade databases of pgflow, the workflow engine inside PostgreSQL."""
