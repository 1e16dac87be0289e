"""``audit``: what stands in the way of the upgrade."""

from __future__ import annotations

import errno
import json
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from pgflow_migrate.cli import output
from pgflow_migrate.cli.json_schema import json_schema_option
from pgflow_migrate.cli.options import dsn_option, format_option, given, target_of
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_OK

if TYPE_CHECKING:
    from pgflow_migrate.audit.findings import AuditReport


@click.command()
@dsn_option
@format_option("table", "json", "junit", "github", "html")
@click.option(
    "--output",
    "file",
    type=click.File("w", encoding="utf-8", lazy=True),
    help="Write the report to this file instead of stdout; as json, junit or github also what went wrong.",
)
@click.option("--sql", is_flag=True, help="Print the SQL script that makes the report, for another client.")
@json_schema_option
@click.pass_context
def audit(ctx: click.Context, dsn: str | None, format_: str, file: TextIO | None, sql: bool) -> None:
    """Report what stands in the way of the upgrade; changes nothing.

    Exits 0 when nothing blocks, 3 when findings do, 1 when the audit could not run. A clean report is of one
    point in time: the upgrade checks everything again under its locks.

    \b
    pgflow-migrate audit --dsn service=production
    pgflow-migrate audit --format html --output audit.html
    pgflow-migrate audit --sql | psql service=production
    """
    from pgflow_migrate.audit import script

    if sql:
        if given(ctx, "format_"):
            raise click.UsageError("--sql prints a script, which has no --format: give one of the two.")
        output.echo(script.compose(), nl=False, file=file)
        _close(file)
        return

    from pgflow_migrate.audit.run import run_audit
    from pgflow_migrate.cli import progress
    from pgflow_migrate.upgrade import estimate

    if file is not None and file.name != "-":
        _check(Path(file.name))
        output.remember_file(ctx, Path(file.name))
    target = target_of(dsn)
    expected = partial(estimate.seconds, target, "audit")
    if format_ == "html":
        with progress.working("Auditing", quiet=False, expected=expected):
            report, page = _page(target)
        output.echo(page, nl=False, file=file)
    else:
        with progress.working("Auditing", quiet=format_ == "json", expected=expected):
            report = run_audit(target)
        _print(report, format_, file)
    _close(file)
    ctx.exit(EXIT_BLOCKED if report.blocking else EXIT_OK)


def _print(report: AuditReport, format_: str, file: TextIO | None) -> None:
    from pgflow_migrate.audit import render

    if format_ == "table":
        render.table(report, output.console(file=file))
    elif format_ == "json":
        output.echo(json.dumps(render.document(report), indent=2, ensure_ascii=False), file=file)
    else:
        text = {"junit": render.junit, "github": render.github}[format_](report)
        output.echo(text, nl=False, file=file)


def _page(target: str) -> tuple[AuditReport, str]:
    """The one form that has more than the findings, and the report in it."""
    from pgflow_migrate.audit import render
    from pgflow_migrate.audit.run import survey

    report, outlook = survey(target)
    return report, render.html(report, outlook)


def _check(path: Path) -> None:
    """Before the audit, which may take long; without opening the file, which would empty an older report.

    Raises:
        click.FileError: it could not be written.
    """
    try:
        there = path if path.exists() else path.parent
        missing, is_folder = not there.exists(), path.is_dir()
    except OSError as error:  # a folder that may not be entered, a name that is too long
        raise click.FileError(str(path), hint=error.strerror) from error
    writable = os.access(there, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
    for wrong, code in ((is_folder, errno.EISDIR), (missing, errno.ENOENT), (not writable, errno.EACCES)):
        if wrong:
            raise click.FileError(str(path), hint=os.strerror(code))


def _close(file: TextIO | None) -> None:
    """Here and not at the end of the process, because a file system may tell only now that it is full."""
    if file is None:
        return
    try:
        file.close()
    except OSError as error:
        raise output.OutputError(f"The output could not be written: {error.strerror or error}.") from error
