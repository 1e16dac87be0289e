"""The one place that shows errors: a sentence, a remedy, the exit code; as JSON where JSON was asked for."""

from __future__ import annotations

import contextlib
import traceback
from typing import TYPE_CHECKING, Any

import click

from pgflow_migrate import layout
from pgflow_migrate.cli import output
from pgflow_migrate.cli.secrets import masked
from pgflow_migrate.errors import (
    BlockedError,
    FenceError,
    Interrupted,
    LiveWorkersError,
    PgflowMigrateError,
)

if TYPE_CHECKING:
    from pgflow_migrate.audit.findings import Finding


def show(ctx: click.Context, error: BaseException) -> int:
    """Tell the user about ``error``; returns the exit code to end with."""
    if ctx.params.get("debug"):
        trace = masked("".join(traceback.format_exception(error)))
        output.echo(trace, err=True, nl=False, level="debug")
    told = error if isinstance(error, PgflowMigrateError) else _unexpected(error)
    told.message, told.remedy = masked(told.message), masked(told.remedy)
    told.details = tuple(map(masked, told.details))
    findings = told.findings if isinstance(told, BlockedError) else ()
    with contextlib.suppress(output.OutputError):  # the error itself is told on stderr
        _report(ctx, told, findings)
    if output.stderr_is_json():
        output.log(
            "error", told.message, remedy=told.remedy, details=list(told.details), exit_code=told.exit_code
        )
        return told.exit_code
    width = output.width(stderr=True)
    first, *more = layout.lines(f"error: {told.message}", width)
    styled = click.style("error:", fg="red", bold=True)
    output.echo(styled + first.removeprefix("error:"), err=True)
    for line in more:
        output.echo(line, err=True)
    for detail in told.details:
        for line in layout.lines(detail, width, "  "):
            output.echo(line, err=True)
    if told.remedy:
        for line in layout.lines(told.remedy, width):
            output.echo(line, err=True)
    return told.exit_code


def of_file(error: click.FileError) -> PgflowMigrateError:
    """What click says of a file that cannot be opened, in our words."""
    return PgflowMigrateError(
        f"{error.ui_filename} cannot be opened: {error.message.rstrip('.')}.",
        "Name another file, in a folder that is there and that you may write to.",
    )


def hide_secrets(error: click.ClickException) -> None:
    """Let what click itself finds wrong repeat no password: it repeats what it was given."""
    for name in ("message", "param_hint", "option_name", "command_name"):
        value = getattr(error, name, None)
        if isinstance(value, str):
            setattr(error, name, masked(value))


def show_usage(error: click.ClickException) -> int:
    """The same for what click itself finds wrong, where stderr is JSON; returns the exit code."""
    message = " ".join(error.format_message().split())
    output.log("error", message, remedy="", details=[], exit_code=error.exit_code)
    return error.exit_code


def _report(ctx: click.Context, error: PgflowMigrateError, findings: tuple[Finding, ...]) -> None:
    """Print it on stdout or into the file that was named, in the format that was asked for."""
    chosen = output.chosen_format(ctx)
    if chosen == "json":
        with output.chosen_file(ctx) as file:
            output.print_json(_document(error, findings), file=file)
    elif chosen in ("junit", "github"):
        from pgflow_migrate.cli.failure_reports import REPORTS

        with output.chosen_file(ctx) as file:
            output.echo(REPORTS[chosen](ctx.invoked_subcommand or "", error), file=file)
    elif findings:
        from pgflow_migrate.audit import render

        render.findings_table(findings, output.console())


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
    statuses: dict[type, str] = {
        FenceError: "fence",
        BlockedError: "blocked",
        LiveWorkersError: "live-workers",
    }
    status = next((statuses[kind] for kind in type(error).__mro__ if kind in statuses), "failed")
    document: dict[str, Any] = {
        "status": status,
        "exit_code": error.exit_code,
        "error": {"message": error.message, "remedy": error.remedy, "details": list(error.details)},
    }
    if isinstance(error, BlockedError):
        document["findings"] = [output.plain(finding) for finding in findings]
    if isinstance(error, LiveWorkersError):
        document["workers"] = [output.plain(worker) for worker in error.workers]
    if isinstance(error, FenceError):
        document["blockers"] = [output.plain(blocker) for blocker in error.blockers]
    return document
