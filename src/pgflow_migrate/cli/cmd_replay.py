"""``replay``: take populated old databases through audit and upgrade."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgflow_migrate import resources
from pgflow_migrate.cli import output
from pgflow_migrate.cli.options import format_option
from pgflow_migrate.layout import plural

if TYPE_CHECKING:
    from pgflow_migrate.replay.results import Result
    from pgflow_migrate.servers import How


def _servers(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: the kinds of servers."""
    kinds = ("embedded:16", "embedded:17", "embedded:18", "binaries:", "container", "postgresql://")
    return [kind for kind in kinds if kind.startswith(incomplete)]


def _releases(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: the releases that there are scenarios for."""
    names = {folder.parent.name for folder in _folders(ctx)}
    return sorted(name for name in names if name.startswith(incomplete))


def _scenarios(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: the scenarios, of the release that was given."""
    release = ctx.params.get("release")
    names = {folder.name for folder in _folders(ctx) if release in (None, folder.parent.name)}
    return sorted(name for name in names if name.startswith(incomplete))


def _folders(ctx: click.Context) -> tuple[Path, ...]:
    from pgflow_migrate.replay import scenario

    return scenario.folders(ctx.params.get("fixtures") or resources.fixtures())


@click.command()
@click.option(
    "--server",
    "kind",
    default="embedded:18",
    show_default=True,
    metavar="KIND",
    shell_complete=_servers,
    help="embedded:16|17|18, binaries:FOLDER, container[:IMAGE], or a DSN whose role may create databases.",
)
@click.option(
    "--pgmq",
    type=click.Choice(["extension", "sql"]),
    help="Default: as an extension where the server has it.",
)
@click.option(
    "--release",
    metavar="RELEASE",
    shell_complete=_releases,
    help="Only this release's scenarios, such as 0.16.0.",
)
@click.option(
    "--scenario",
    "pattern",
    default="*",
    metavar="GLOB",
    shell_complete=_scenarios,
    help="Only scenarios of these names.",
)
@click.option(
    "--baseline-sql",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Build the old cores from pgflow's released migrations (*_pgflow_*.sql) in this folder.",
)
@click.option(
    "--fixtures",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Scenarios of your own, in FOLDER/<release>/<name>; default: those that come with the tool.",
)
@format_option("table", "json", "junit")
@click.pass_context
def replay(
    ctx: click.Context,
    kind: str,
    pgmq: How | None,
    release: str | None,
    pattern: str,
    baseline_sql: Path | None,
    fixtures: Path | None,
    format_: str,
) -> None:
    """Take populated old databases through audit and upgrade, and compare with what must come of them.

    Exits 0 when every scenario ends as expected, 3 when one differs, 1 when one could not be run, 2 when
    no scenario is of that release or name.
    """
    from pgflow_migrate.replay import render, run
    from pgflow_migrate.replay.scenario import load_all
    from pgflow_migrate.replay.templates import Templates
    from pgflow_migrate.servers import open_server

    scenarios = load_all(fixtures or resources.fixtures(), release, pattern)
    done = 0

    def show(result: Result) -> None:
        nonlocal done
        done += 1
        output.echo(f"[{done}/{len(scenarios)}] {result.id}: {result.outcome.value}", err=True)

    with open_server(kind) as server:
        output.echo(f"{plural(len(scenarios), 'scenario')} on {server.label}", err=True)
        templates = Templates(server, pgmq=pgmq, baseline_sql=baseline_sql)
        report = run.replay(server, templates, scenarios, show)
    if format_ == "table":
        render.table(report, output.console())
    else:
        output.echo(render.as_json(report) if format_ == "json" else render.junit(report))
    ctx.exit(report.exit_code)
