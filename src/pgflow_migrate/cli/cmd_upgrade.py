"""``upgrade``: take a database to the newest revision."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from pgflow_migrate.cli import output
from pgflow_migrate.cli.json_schema import json_schema_option
from pgflow_migrate.cli.options import Duration, dsn_option, format_option, given, target_of
from pgflow_migrate.releases.chain import STARTS, release_of

if TYPE_CHECKING:
    from pgflow_migrate.upgrade.run import UpgradeResult

RELEASES = tuple(map(release_of, STARTS))


@click.command()
@dsn_option
@click.option(
    "--lock-timeout",
    type=Duration(),
    default="5s",
    show_default=True,
    help="The longest single wait for a lock, such as 500ms or 2min; others queue behind it meanwhile.",
)
@click.option(
    "--max-wait",
    type=Duration(),
    default="30s",
    show_default=True,
    help="How long to go on trying for all the locks, giving them back in between.",
)
@click.option("--allow-live-workers", is_flag=True, help="Go ahead although workers are at work.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Do all of it and roll back. It does take the locks, and holds them as long as the upgrade would.",
)
@click.option("--sql", is_flag=True, help="Print the upgrade as one SQL script, and connect to nothing.")
@click.option(
    "--from",
    "release",
    type=click.Choice(RELEASES),
    default="0.16.0",
    show_default=True,
    help="With --sql: the release that the script starts from; it refuses another.",
)
@click.option(
    "--no-transaction",
    is_flag=True,
    help="With --sql: leave out BEGIN and COMMIT, for a runner that brings its own transaction.",
)
@format_option("table", "json")
@json_schema_option
@click.pass_context
def upgrade(
    ctx: click.Context,
    dsn: str | None,
    lock_timeout: timedelta,
    max_wait: timedelta,
    allow_live_workers: bool,
    dry_run: bool,
    sql: bool,
    release: str,
    no_transaction: bool,
    format_: str,
) -> None:
    """Upgrade a database to the newest revision, in one transaction.

    A database of a known release is upgraded from there; one without pgflow is refused. When anything fails,
    or Ctrl-C or SIGTERM ends it (exit 1), everything is rolled back and the database is as it was. (Only when
    the connection is lost during COMMIT may it be done all the same; the error says so, and status tells.)
    Take a backup first: there is no downgrade but from dirty_runs to queue identity.

    \b
    pgflow-migrate upgrade --dsn postgresql://postgres@db.example/app --max-wait 2min
    pgflow-migrate upgrade --sql > upgrade.sql
    """
    from pgflow_migrate.upgrade.session import Fence

    fence = Fence(lock_timeout, max_wait, allow_live_workers)
    if sql:
        if dry_run or given(ctx, "dsn", "format_"):
            raise click.UsageError(
                "--sql prints a script: it goes with neither --dsn, --dry-run nor --format."
            )
        from pgflow_migrate.upgrade import script

        output.echo(script.upgrade_script(release, fence, transaction=not no_transaction), nl=False)
        return
    if no_transaction or given(ctx, "release"):
        raise click.UsageError("--no-transaction and --from go with --sql.")

    from pgflow_migrate.cli import progress
    from pgflow_migrate.upgrade import estimate, run

    target = target_of(dsn)
    with progress.shown(
        files=bool(ctx.find_root().params.get("debug")),
        quiet=format_ == "json",
        expected=lambda: estimate.seconds(target, "upgrade"),
    ) as on_progress:
        result = run.upgrade(
            target,
            fence=fence,
            from_nothing=False,
            dry_run=dry_run,
            on_progress=on_progress,
        )
    try:
        if format_ == "json":
            document = {"schema": "urn:pgflow-migrate:upgrade:1", "status": _status(result), "exit_code": 0}
            output.print_json({**document, **output.plain(result)})
        else:
            output.echo(_summary(result))
            if not dry_run:
                output.echo("To check it, with the same connection: pgflow-migrate verify", err=True)
    except output.OutputError as error:
        if dry_run:
            raise
        # The upgrade is committed, and an exit code of failure would say that it is not.
        output.echo(f"{_summary(result)}\n{error.message}", err=True)


def _status(result: UpgradeResult) -> str:
    if result.already_current:
        return "already-upgraded"
    return "dry-run" if result.dry_run else "upgraded"


def _summary(result: UpgradeResult) -> str:
    if result.already_current:
        return f"Already upgraded: the database is at {result.revision}; nothing was changed."
    seconds = sum(applied.seconds for applied in result.applied)
    done = "Would upgrade" if result.dry_run else "Upgraded"
    end = "rolled back" if result.dry_run else "committed"
    lines = [f"{done} from {result.from_release} to {result.revision} in {seconds:.1f} s, {end}."]
    if result.backfilled is not None:
        steps, tasks = result.backfilled.steps, result.backfilled.tasks
        lines.append(
            f"Rows that {'would get' if result.dry_run else 'got'} their queue's name:"
            f" {steps} in pgflow.steps, {tasks} in pgflow.step_tasks."
        )
    if result.locked_seconds is not None:
        lines.append(f"Others were locked out for {result.locked_seconds:.1f} s.")
    return "\n".join(lines)
