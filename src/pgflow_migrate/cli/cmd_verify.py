"""``verify``: whether an upgraded database keeps what its revision promises."""

from __future__ import annotations

import json
from functools import partial

import click

from pgflow_migrate.cli import output
from pgflow_migrate.cli.json_schema import json_schema_option
from pgflow_migrate.cli.options import dsn_option, format_option, target_of
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_OK


@click.command()
@dsn_option
@format_option("table", "json", "junit", "github")
@json_schema_option
@click.pass_context
def verify(ctx: click.Context, dsn: str | None, format_: str) -> None:
    """Check every invariant of an upgraded database; changes nothing.

    Any time, also while work goes on: it reads one snapshot, and needs SELECT alone. Exits 0 when all hold, 3
    when one does not, 1 when it could not look, for instance because the database is not upgraded.

    \b
    pgflow-migrate verify --dsn service=production
    """
    from pgflow_migrate.cli import progress
    from pgflow_migrate.upgrade import estimate
    from pgflow_migrate.verify import render
    from pgflow_migrate.verify.run import verify as run

    target = target_of(dsn)
    expected = partial(estimate.seconds, target, "verify")
    with progress.working("Verifying", quiet=format_ == "json", expected=expected):
        found = run(target)
    if format_ == "table":
        render.table(found, output.console())
    elif format_ == "json":
        output.echo(json.dumps(render.document(found), indent=2, ensure_ascii=False))
    else:
        output.echo({"junit": render.junit, "github": render.github}[format_](found), nl=False)
    ctx.exit(EXIT_BLOCKED if found.violations else EXIT_OK)
