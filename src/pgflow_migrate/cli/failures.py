"""The one place that shows errors: a sentence, a remedy, the exit code; as JSON where JSON was asked for."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import click

from pgflow_migrate.cli import output
from pgflow_migrate.errors import BlockedError, FenceError, Interrupted, PgflowMigrateError

if TYPE_CHECKING:
    from pgflow_migrate.audit.findings import Finding


def show(ctx: click.Context, error: BaseException) -> int:
    """Tell the user about ``error``; returns the exit code to end with."""
    if ctx.params.get("debug"):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    told = error if isinstance(error, PgflowMigrateError) else _unexpected(error)
    findings = told.findings if isinstance(told, BlockedError) else ()
    if output.chosen_format(ctx) == "json":
        output.print_json(_document(told, findings))
    elif findings:
        from pgflow_migrate.audit import render

        render.findings_table(findings, output.console())
    click.echo(
        f"{click.style('error:', fg='red', bold=True)} {told.message}", err=True, color=output.colour()
    )
    for detail in told.details:
        click.echo(f"  {detail}", err=True)
    if told.remedy:
        click.echo(told.remedy, err=True)
    return told.exit_code


def _unexpected(error: BaseException) -> PgflowMigrateError:
    if isinstance(error, Interrupted):
        return PgflowMigrateError(error.message, error.remedy)
    if isinstance(error, KeyboardInterrupt):
        return PgflowMigrateError(f"Ended by {str(error) or 'Ctrl-C'}.")
    text = " ".join(str(error).split())
    return PgflowMigrateError(
        f"Unexpected {type(error).__name__}: {text}" if text else f"Unexpected {type(error).__name__}.",
        "Run pgflow-migrate --debug … for the traceback.",
    )


def _document(error: PgflowMigrateError, findings: tuple[Finding, ...]) -> dict[str, Any]:
    status = {FenceError: "fence", BlockedError: "blocked"}.get(type(error), "failed")
    document: dict[str, Any] = {
        "status": status,
        "exit_code": error.exit_code,
        "error": {"message": error.message, "remedy": error.remedy, "details": list(error.details)},
    }
    if isinstance(error, BlockedError):
        document["findings"] = [output.plain(finding) for finding in findings]
    if isinstance(error, FenceError):
        document["blockers"] = [output.plain(blocker) for blocker in error.blockers]
    return document
