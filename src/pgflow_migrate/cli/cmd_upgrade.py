"""``upgrade``: take a database to queue identity."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from pgflow_migrate.cli import output
from pgflow_migrate.cli.options import Duration, dsn_option, format_option

if TYPE_CHECKING:
    from pgflow_migrate.upgrade.run import UpgradeResult


@click.command()
@dsn_option
@click.option(
    "--lock-timeout",
    type=Duration(),
    default="5s",
    show_default=True,
    help="The longest wait for a lock, such as 500ms or 2min.",
)
@format_option("table", "json")
@click.pass_context
def upgrade(ctx: click.Context, dsn: str | None, lock_timeout: timedelta, format_: str) -> None:
    """Upgrade a database to queue identity, in one transaction.

    A database of a known release is upgraded from there; one without pgflow is refused. When anything fails,
    or Ctrl-C or SIGTERM ends it (exit 1), everything is rolled back and the database is as it was. Take a
    backup first: there is no downgrade.

    \b
    pgflow-migrate upgrade --dsn postgresql://postgres@db.example/app --lock-timeout 10s
    """
    from pgflow_migrate.cli import progress
    from pgflow_migrate.database import resolve_dsn
    from pgflow_migrate.upgrade import run

    with progress.shown(files=bool(ctx.find_root().params.get("debug"))) as on_progress:
        result = run.upgrade(
            resolve_dsn(dsn, os.environ),
            lock_timeout=lock_timeout,
            from_nothing=False,
            on_progress=on_progress,
        )
    try:
        if format_ == "json":
            status = "already-upgraded" if result.already_current else "upgraded"
            output.print_json({"status": status, "exit_code": 0, **output.plain(result)})
        else:
            output.echo(_summary(result))
    except output.OutputError as error:
        # The upgrade is committed, and an exit code of failure would say that it is not.
        output.echo(f"{_summary(result)}\n{error.message}", err=True)


def _summary(result: UpgradeResult) -> str:
    if result.already_current:
        return f"Already upgraded: the database is at {result.revision}; nothing was changed."
    seconds = sum(applied.seconds for applied in result.applied)
    lines = [f"Upgraded from {result.from_release} to {result.revision} in {seconds:.1f} s, committed."]
    if result.backfilled is not None:
        steps, tasks = result.backfilled.steps, result.backfilled.tasks
        lines.append(
            f"Rows that got their queue's name: {steps} in pgflow.steps, {tasks} in pgflow.step_tasks."
        )
    return "\n".join(lines)
