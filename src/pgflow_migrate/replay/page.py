"""A replay as an HTML page that needs nothing else; style, script and frame are the audit's."""

from __future__ import annotations

from functools import cache

from jinja2 import BaseLoader, ChoiceLoader, Environment, PackageLoader

from pgflow_migrate import __version__
from pgflow_migrate.audit.render import page
from pgflow_migrate.layout import plural
from pgflow_migrate.replay import render
from pgflow_migrate.replay.matrix import Matrix
from pgflow_migrate.replay.results import Outcome, Report

_NAMED = (Outcome.DIFFERS, Outcome.BLOCKED, Outcome.COULD_NOT_RUN)
_MOST_NAMED = 5

_KINDS = {
    Outcome.AS_EXPECTED: "good",
    Outcome.UPGRADES: "good",
    Outcome.SKIPPED: "warning",
}

# One and several, which the verdict names, the worst first.
_SAID = {
    Outcome.DIFFERS: ("does not come out as it must", "do not come out as they must"),
    Outcome.BLOCKED: ("is blocked by findings of the audit", "are blocked by findings of the audit"),
    Outcome.COULD_NOT_RUN: ("could not be run", "could not be run"),
    Outcome.SKIPPED: ("was skipped", "were skipped"),
    Outcome.UPGRADES: ("upgrades", "upgrade"),
    Outcome.AS_EXPECTED: ("comes out as it must", "come out as they must"),
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
            verdict=_verdict(reports, grid),
            lines=_lines,
            kind=lambda outcome: _KINDS.get(outcome, "error"),
            counted=render.counted,
            summary=render.summary,
            version=__version__,
        )
    )


def _verdict(reports: tuple[Report, ...], grid: Matrix | None) -> str:
    """How many of what ended how, a sentence each; which, where it is a few that are not as they must."""
    said = []
    for outcome, (one, several) in _SAID.items():
        for of in dict.fromkeys(report.of for report in reports):
            found = [
                (report, result)
                for report in reports
                if report.of == of
                for result in report.results
                if result.outcome is outcome
            ]
            if found:
                names = dict.fromkeys(result.id for _, result in found)
                named = f": {', '.join(names)}" if outcome in _NAMED and len(names) <= _MOST_NAMED else ""
                said.append(f"{plural(len(found), of)} {one if len(found) == 1 else several}{named}.")
    unrun = [cell for cell in grid.cells if cell.report is None] if grid else []
    for failed, what in ((True, "could not be used"), (False, "not there")):
        if cells := [cell for cell in unrun if cell.failed is failed]:
            where = ", ".join(f"{cell.server} with PGMQ as {cell.pgmq}" for cell in cells)
            said.append(f"{what.capitalize()}: {where}.")
    for cell in grid.cells if grid else ():
        if cell.report is not None and cell.failed:
            said.append(f"{cell.server} with PGMQ as {cell.pgmq} {render.AFTERWARDS}: {cell.reason}")
    return " ".join(said) or "Nothing was replayed."


def _lines(text: str) -> list[list[tuple[bool, str]]]:
    """A detail or note, line by line, and each in prose and in statements to copy.

    Names stand in the first lines and inside the quotes of the last one's statements; a backslash there may
    be something that cannot be shown.
    """
    *facts, last = text.split("\n")
    if not facts:
        return [[(False, last)]]
    code = facts[0].partition(" ")[0]
    hint = [(is_sql and "\\" not in part, part) for is_sql, part in page.parts(last, code)]
    return [*([(False, fact)] for fact in facts), hint]


@cache
def _environment() -> Environment:
    of_audit = page.environment()
    loaders: list[BaseLoader] = [PackageLoader("pgflow_migrate.replay", "pages")]
    if of_audit.loader is not None:
        loaders.append(of_audit.loader)
    return of_audit.overlay(loader=ChoiceLoader(loaders))
