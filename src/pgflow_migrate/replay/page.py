"""A replay as an HTML page that needs nothing else; style, script and frame are the audit's."""

from __future__ import annotations

from functools import cache

from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader

from pgflow_migrate import __version__
from pgflow_migrate.audit.render import page
from pgflow_migrate.errors import EXIT_BLOCKED, EXIT_OK
from pgflow_migrate.replay import render
from pgflow_migrate.replay.matrix import Matrix
from pgflow_migrate.replay.results import Outcome, Report

_KINDS = {
    Outcome.AS_EXPECTED: "good",
    Outcome.UPGRADES: "good",
    Outcome.SKIPPED: "warning",
}

_VERDICTS = {
    EXIT_OK: "Everything came out as it must.",
    EXIT_BLOCKED: "Something blocks an upgrade, or did not come out as it must.",
}


def html(report: Report) -> str:
    """The page of one replay; every name and every text in it is escaped."""
    return _page((report,), None, report.exit_code)


def grid_html(matrix: Matrix) -> str:
    """The page of a matrix: its grid, then each replay."""
    reports = tuple(cell.report for cell in matrix.cells if cell.report is not None)
    return _page(reports, matrix, matrix.exit_code)


def _page(reports: tuple[Report, ...], grid: Matrix | None, exit_code: int) -> str:
    return (
        _environment()
        .get_template("replay.html.j2")
        .render(
            reports=reports,
            grid=grid,
            exit_code=exit_code,
            verdict=_VERDICTS.get(exit_code, "Something could not be run."),
            kind=lambda outcome: _KINDS.get(outcome, "error"),
            counted=render.counted,
            summary=render.summary,
            version=__version__,
        )
    )


@cache
def _environment() -> Environment:
    of_audit = page.environment()
    loaders: list[BaseLoader] = [PackageLoader("pgflow_migrate.replay", "pages")]
    if of_audit.loader is not None:
        loaders.append(of_audit.loader)
    return of_audit.overlay(loader=ChoiceLoader(loaders))
