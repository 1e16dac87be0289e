"""``replay``: take populated old databases through audit and upgrade."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pgflow_migrate import resources
from pgflow_migrate.cli import output, signals
from pgflow_migrate.cli.json_schema import json_schema_option
from pgflow_migrate.cli.options import OneCallOption, Whole, format_option, given, once
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.layout import plural

if TYPE_CHECKING:
    from pgflow_migrate.cli.progress import Meter
    from pgflow_migrate.replay.matrix import Cell, Matrix
    from pgflow_migrate.replay.results import Report, Result
    from pgflow_migrate.replay.scenario import Scenario
    from pgflow_migrate.servers import How, Server

    Player = Callable[[Server, "How | None"], Report]


def _servers(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: the kinds of servers."""
    kinds = ("embedded:16", "embedded:17", "embedded:18", "binaries:", "container", "postgresql://")
    return [kind for kind in kinds if kind.startswith(incomplete)]


def _releases(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: the releases that there are scenarios for."""
    names = {folder.parent.name for folder in _folders(ctx)}
    return sorted(name for name in names if name.startswith(incomplete))


def _scenarios(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """For the shell: the scenarios, of the releases that were given."""
    releases = ctx.params.get("releases") or ()
    names = {folder.name for folder in _folders(ctx) if not releases or folder.parent.name in releases}
    return sorted(name for name in names if name.startswith(incomplete))


def _folders(ctx: click.Context) -> tuple[Path, ...]:
    from pgflow_migrate.replay import scenario

    return scenario.folders(ctx.params.get("fixtures") or resources.fixtures())


@click.command()
@click.option(
    "--server",
    "kind",
    multiple=True,
    type=Whole(),
    callback=once("Several servers are named with --matrix, each as --on."),
    default=["embedded:18"],
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
    "releases",
    multiple=True,
    metavar="RELEASE",
    shell_complete=_releases,
    help="Only this release's scenarios, such as 0.16.0; may be repeated.",
)
@click.option(
    "--scenario",
    "patterns",
    multiple=True,
    metavar="GLOB",
    shell_complete=_scenarios,
    help="Only scenarios of this name, such as 'queue_*'; may be repeated.",
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
@click.option(
    "--from",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    cls=OneCallOption,
    metavar="FILE",
    help="Instead of scenarios the database that export copied into FILE.",
)
@click.option(
    "--matrix",
    cls=OneCallOption,
    is_flag=True,
    help="On several servers, with PGMQ in both forms; prints one grid.",
)
@click.option(
    "--on",
    "servers",
    cls=OneCallOption,
    multiple=True,
    metavar="KIND",
    shell_complete=_servers,
    help="With --matrix: a server, as for --server; may be repeated.  [default: each embedded one]",
)
@format_option("table", "json", "junit", "html")
@json_schema_option
@click.pass_context
def replay(
    ctx: click.Context,
    kind: str,
    pgmq: How | None,
    releases: tuple[str, ...],
    patterns: tuple[str, ...],
    baseline_sql: Path | None,
    fixtures: Path | None,
    file: Path | None,
    matrix: bool,
    servers: tuple[str, ...],
    format_: str,
) -> None:
    """Take populated old databases through audit and upgrade, and compare with what must come of them.

    With --from it is one database, your own: it is rebuilt from the file, audited, upgraded and verified.

    Exits 0 when every scenario ends as expected, or the file's database upgrades; 3 when one differs, or
    findings block it; 1 when one could not be run; 2 when no scenario is of that release or name.

    \b
    pgflow-migrate replay --release 0.16.0 --scenario 'queue_*' --scenario stalled_tasks
    pgflow-migrate replay --server embedded:16 --pgmq sql --format junit > replay.xml
    pgflow-migrate replay --from production.export
    pgflow-migrate replay --matrix --on embedded:16 --on embedded:18
    """
    if file is not None and given(ctx, "releases", "patterns", "fixtures"):
        raise click.UsageError("--from goes with neither --release, --scenario nor --fixtures.")
    if matrix and given(ctx, "kind"):
        raise click.UsageError("The servers of a --matrix are named with --on.")
    if servers and not matrix:
        raise click.UsageError("--on goes with --matrix; one server is named with --server.")
    from pgflow_migrate.cli import progress
    from pgflow_migrate.replay import matrix as matrices
    from pgflow_migrate.replay import render
    from pgflow_migrate.replay.trouble import explained
    from pgflow_migrate.servers import open_server

    forms = matrices.FORMS if pgmq is None else (pgmq,)
    kinds = (servers or matrices.kinds()) if matrix else (kind,)
    cells = len(kinds) * len(forms) if matrix else 1
    # Before a server is started, and before a bar is drawn, for what cannot be replayed.
    player = (
        _scenarios_player(fixtures, releases, patterns, baseline_sql, cells)
        if file is None
        else _file_player(file, baseline_sql)
    )
    with signals.as_end_of_trial(), progress.counted("Preparing", quiet=format_ == "json") as meter:
        play = player(meter)
        if not matrix:
            with explained(), open_server(kind) as server, explained(server.label):
                report = play(server, pgmq)
        else:
            grid = matrices.run(kinds, forms, play, partial(_tell, meter))
    if not matrix:
        if format_ == "table":
            render.table(report, output.console())
        else:
            output.echo(_report_as(format_)(report))
        ctx.exit(report.exit_code)
    if format_ == "table":
        render.grid(grid, output.console())
    else:
        output.echo(_grid_as(format_)(grid))
    ctx.exit(grid.exit_code)


def _report_as(format_: str) -> Callable[[Report], str]:
    from pgflow_migrate.replay import render

    if format_ == "html":
        from pgflow_migrate.replay import page

        return page.html
    return render.as_json if format_ == "json" else render.junit


def _grid_as(format_: str) -> Callable[[Matrix], str]:
    from pgflow_migrate.replay import render

    if format_ == "html":
        from pgflow_migrate.replay import page

        return page.grid_html
    return render.grid_json if format_ == "json" else render.grid_junit


def _scenarios_player(
    fixtures: Path | None,
    releases: tuple[str, ...],
    patterns: tuple[str, ...],
    baseline_sql: Path | None,
    cells: int,
) -> Callable[[Meter], Player]:
    """Replays scenarios, and says how far it is of all that are to be replayed in so many cells."""
    import psycopg

    from pgflow_migrate.replay import run
    from pgflow_migrate.replay.scenario import load_all
    from pgflow_migrate.replay.templates import Templates

    scenarios = load_all(fixtures or resources.fixtures(), releases, patterns or ("*",))
    played = 0

    def play(meter: Meter, server: Server, pgmq: How | None) -> Report:
        nonlocal played
        done, before = 0, played * len(scenarios)
        played += 1

        def begin(scenario: Scenario) -> None:
            meter.doing(scenario.id, before + done, cells * len(scenarios))

        def show(result: Result) -> None:
            nonlocal done
            done += 1
            meter.say(f"[{done}/{len(scenarios)}] {result.id}: {result.outcome.value}")

        meter.say(f"{plural(len(scenarios), 'scenario')} on {server.label}")
        templates = Templates(server, pgmq=pgmq, baseline_sql=baseline_sql)
        try:
            return run.replay(server, templates, scenarios, show, begin)
        finally:
            # What cannot be dropped goes with the server, or is told when that is left.
            with contextlib.suppress(PgflowMigrateError, psycopg.Error):
                templates.drop()

    return lambda meter: partial(play, meter)


def _file_player(file: Path, baseline_sql: Path | None) -> Callable[[Meter], Player]:
    """Replays the database of a file, and says what it does."""
    from pgflow_migrate.export import Reader
    from pgflow_migrate.export.inventory import summary
    from pgflow_migrate.replay.file import replay_file, revision_to_build

    with Reader(file) as reader:
        revision_to_build(reader)
        said = f"{file}: {summary(reader.header)}"

    def play(meter: Meter, server: Server, pgmq: How | None) -> Report:
        return replay_file(
            server,
            file,
            pgmq=pgmq,
            baseline_sql=baseline_sql,
            on_phase=lambda text: meter.phase(f"{text} on {server.label}"),
            on_rebuilding=lambda table, done, of: meter.doing(f"Rebuilding {table}, bytes", done, of),
        )

    def player(meter: Meter) -> Player:
        meter.say(said)
        return partial(play, meter)

    return player


def _tell(meter: Meter, cell: Cell) -> None:
    from pgflow_migrate.replay import render

    if cell.report is not None:
        meter.say(render.summary(cell.report))
    else:
        meter.say(f"{cell.server}, PGMQ as {cell.pgmq}: {cell.reason}")
