"""``export``: a copy of pgflow's rows and queues in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgflow_migrate.cli import output
from pgflow_migrate.cli.json_schema import json_schema_option
from pgflow_migrate.cli.options import OneCallOption, dsn_option, format_option, target_of
from pgflow_migrate.layout import plural, printable

if TYPE_CHECKING:
    from pgflow_migrate.export import Copying, Exported


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@dsn_option
@click.option(
    "--redact",
    "redacted",
    is_flag=True,
    help="Replace inputs, outputs, patterns, errors and message bodies by placeholders of their shape.",
)
@click.option("--force", cls=OneCallOption, is_flag=True, help="Replace FILE if it exists.")
@format_option("table", "json")
@json_schema_option
@click.pass_context
def export(
    ctx: click.Context, file: Path, dsn: str | None, redacted: bool, force: bool, format_: str
) -> None:
    """Copy pgflow's rows and its queues into a file, for replay --from; changes nothing.

    One read-only snapshot of schema pgflow, of pgmq.meta and of the queues of flows with their messages,
    archives and the positions of their sequences. SELECT is enough: what the role may not read of the queues
    is told, here and in the file. Names of flows, steps, functions and queues stay with --redact, too.
    The file holds nothing of the connection string, and its owner alone can read it. Exits 0 when it is
    written, 1 when it could not be, 2 when it exists already.

    \b
    pgflow-migrate export --dsn service=production --redact production.export
    pgflow-migrate replay --from production.export
    """
    from pgflow_migrate.cli import progress
    from pgflow_migrate.export import write

    with progress.counted("Connecting", quiet=format_ == "json") as meter:

        def show(copying: Copying) -> None:
            what = f"{copying.table}: {copying.rows:,} rows" if copying.rows else copying.table
            meter.doing(what, copying.number - 1, copying.of, even=False)

        done = write.export(target_of(dsn), file, redacted=redacted, force=force, on_copying=show)
    output.remember_change(ctx)
    if format_ == "json":
        output.print_json(_document(done))
        return
    from pgflow_migrate.export.inventory import summary

    header = done.header
    output.echo(f"{file}: {summary(header)}.")
    output.echo(
        f"{plural(done.rows, 'row')} of {plural(len(done.tables), 'table')},"
        f" {plural(done.queues, 'queue')}; {done.size:,} bytes."
    )
    for text in header.left_out:
        output.echo(f"Not copied: {printable(text)}", err=True)
    for text in done.unread:
        output.echo(f"Could not be read: {printable(text)}", err=True, level="warning")


def _document(done: Exported) -> dict[str, object]:
    return {
        "schema": "urn:pgflow-migrate:export:1",
        "status": "exported",
        "exit_code": 0,
        "file": str(done.path),
        "bytes": done.size,
        "rows": done.rows,
        "queues": done.queues,
        "header": done.header.to_json(),
        "tables": [{"table": copied.table, "rows": copied.rows} for copied in done.tables],
    }
