"""A replay's report as a table, as JSON and as JUnit XML."""

from __future__ import annotations

import json
from typing import Any
from xml.etree import ElementTree as Xml

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pgflow_migrate.layout import plural, printable, show, show_table
from pgflow_migrate.replay.matrix import Cell, Matrix
from pgflow_migrate.replay.results import Outcome, Report

_SCHEMA = "urn:pgflow-migrate:replay:1"

_STYLES = {
    Outcome.AS_EXPECTED: "green",
    Outcome.DIFFERS: "bold red",
    Outcome.SKIPPED: "yellow",
    Outcome.COULD_NOT_RUN: "bold red",
    Outcome.UPGRADES: "green",
    Outcome.BLOCKED: "bold red",
}

# Always counted; the others where there are any.
_OF_SCENARIOS = (Outcome.AS_EXPECTED, Outcome.DIFFERS, Outcome.SKIPPED, Outcome.COULD_NOT_RUN)

_IN_CELLS = {Outcome.AS_EXPECTED: "ok"}

AFTERWARDS = "failed afterwards"
"""What a cell did that ran."""

# JUnit's own words; a scenario as expected has none.
_ELEMENTS = {
    Outcome.DIFFERS: "failure",
    Outcome.SKIPPED: "skipped",
    Outcome.COULD_NOT_RUN: "error",
    Outcome.BLOCKED: "failure",
}


def table(report: Report, console: Console) -> None:
    """Print a line a scenario, what differs below the table, and a summary."""
    lines = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("release", report.of, "outcome"):
        lines.add_column(heading, no_wrap=True)
    lines.add_column("seconds", justify="right")
    for result in report.results:
        outcome = Text(result.outcome.value, style=_STYLES[result.outcome])
        name, release = printable(result.name), printable(result.release)
        lines.add_row(Text(release), Text(name), outcome, f"{result.seconds:.2f}")
    show_table(console, lines)
    for result in report.results:
        if result.details:
            console.print()
            show(console, f"{result.id}: {result.outcome.value}", style=_STYLES[result.outcome])
            for detail in result.details:
                _told(detail, console)
        if result.notes:
            console.print("\nNotes")
            for note in result.notes:
                _told(note, console)
    console.print()
    show(console, summary(report))


def _told(text: str, console: Console) -> None:
    """A detail or a note: what, and below it, further in, what belongs to it."""
    for number, line in enumerate(text.split("\n")):
        show(console, line, indent="    " if number else "  ")


def summary(report: Report) -> str:
    """One sentence: how many ended how, and where."""
    counts = ", ".join(
        f"{report.count(outcome)} {outcome.value}" for outcome in Outcome if report.count(outcome)
    )
    return (
        f"{plural(len(report.results), report.of)} on {report.server} with PGMQ as {report.pgmq}: {counts}."
    )


def as_json(report: Report) -> str:
    """One JSON document."""
    return json.dumps({"schema": _SCHEMA, **document(report)}, indent=2, ensure_ascii=False)


def document(report: Report) -> dict[str, Any]:
    """The report in JSON's own types."""
    return {
        "server": report.server,
        "pgmq": report.pgmq,
        "exit_code": report.exit_code,
        "counts": {
            outcome.value: report.count(outcome)
            for outcome in Outcome
            if outcome in _OF_SCENARIOS or report.count(outcome)
        },
        "seconds": round(report.seconds, 3),
        f"{report.of}s": [
            {
                "release": result.release,
                "name": result.name,
                "outcome": result.outcome.value,
                "details": list(result.details),
                "seconds": round(result.seconds, 3),
                **({"notes": list(result.notes)} if result.notes else {}),
            }
            for result in report.results
        ],
    }


def junit(report: Report) -> str:
    """JUnit XML: a test suite a replay, a test case a scenario."""
    root = Xml.Element("testsuites", name="replay")
    root.append(suite(report))
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=True)


def suite(report: Report) -> Xml.Element:
    """The test suite."""
    made = Xml.Element(
        "testsuite",
        name=_suite_name(report),
        tests=str(len(report.results)),
        failures=str(report.count(Outcome.DIFFERS) + report.count(Outcome.BLOCKED)),
        errors=str(report.count(Outcome.COULD_NOT_RUN)),
        skipped=str(report.count(Outcome.SKIPPED)),
        time=f"{report.seconds:.3f}",
    )
    for result in report.results:
        case = Xml.SubElement(
            made,
            "testcase",
            classname=printable(f"replay.{result.release}"),
            name=printable(result.name),
            time=f"{result.seconds:.3f}",
        )
        if result.outcome in _ELEMENTS:
            told = Xml.SubElement(case, _ELEMENTS[result.outcome], message=_lines(result.details[0]))
            told.text = _lines("\n".join(result.details))
        if result.notes:
            Xml.SubElement(case, "system-out").text = _lines("\n".join(result.notes))
    return made


def grid(matrix: Matrix, console: Console) -> None:
    """Print a line a server and form, a column a release, and below it what is not as it should be."""
    lines = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("server", "PGMQ", *matrix.releases):
        lines.add_column(Text(printable(heading)), no_wrap=True)
    for cell in matrix.cells:
        lines.add_row(
            Text(printable(cell.server)), cell.pgmq, *(_cell(cell, name) for name in matrix.releases)
        )
    show_table(console, lines)
    for cell in matrix.cells:
        where = f"{cell.server}, PGMQ as {cell.pgmq}"
        if cell.report is None:
            console.print()
            show(console, f"{where}: {_unrun(cell)}", style="bold red" if cell.failed else "yellow")
            show(console, cell.reason, indent="  ")
            continue
        for result in cell.report.results:
            if _ELEMENTS.get(result.outcome, "skipped") == "skipped":
                continue
            console.print()
            show(console, f"{where}, {result.id}: {result.outcome.value}", style="bold red")
            for detail in result.details:
                _told(detail, console)
        if cell.failed:
            console.print()
            show(console, f"{where}: {AFTERWARDS}", style="bold red")
            show(console, cell.reason, indent="  ")


def grid_json(matrix: Matrix) -> str:
    """One JSON document, with the report of each cell as :func:`as_json` has it."""
    cells = [
        {
            "server": cell.server,
            "pgmq": cell.pgmq,
            "status": _unrun(cell) if cell.report is None else "ran",
            "reason": cell.reason,
            "report": None if cell.report is None else document(cell.report),
        }
        for cell in matrix.cells
    ]
    whole = {
        "schema": _SCHEMA,
        "exit_code": matrix.exit_code,
        "releases": list(matrix.releases),
        "cells": cells,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False)


def grid_junit(matrix: Matrix) -> str:
    """JUnit XML: a test suite a cell; what did not run, or failed afterwards, has a case saying why."""
    root = Xml.Element("testsuites", name="replay")
    for cell in matrix.cells:
        if cell.report is not None:
            root.append(suite(cell.report))
            if not cell.failed:
                continue
        made = Xml.SubElement(
            root,
            "testsuite",
            name=_suite_name(cell),
            tests="1",
            failures="0",
            errors=str(int(cell.failed)),
            skipped=str(int(not cell.failed)),
            time="0.000",
        )
        case = Xml.SubElement(made, "testcase", classname="replay", name="server", time="0.000")
        reason = printable(cell.reason)
        Xml.SubElement(case, "error" if cell.failed else "skipped", message=reason).text = reason
    Xml.indent(root)
    return Xml.tostring(root, encoding="unicode", xml_declaration=True)


def _suite_name(of: Report | Cell) -> str:
    return printable(f"replay on {of.server} with PGMQ as {of.pgmq}")


def counted(cell: Cell, release: str) -> list[tuple[Outcome, int]]:
    """How many of a release ended how in a cell, the worst first."""
    results = cell.report.results if cell.report is not None else ()
    order = [Outcome.DIFFERS, Outcome.BLOCKED, Outcome.COULD_NOT_RUN, Outcome.UPGRADES, Outcome.AS_EXPECTED]
    order.append(Outcome.SKIPPED)
    counts = [
        (outcome, sum(r.release == release and r.outcome is outcome for r in results)) for outcome in order
    ]
    return [(outcome, count) for outcome, count in counts if count]


def _cell(cell: Cell, release: str) -> Text:
    if cell.report is None:
        return Text(_unrun(cell), style="bold red" if cell.failed else "yellow")
    return Text(", ").join(
        Text(f"{_IN_CELLS.get(outcome, outcome.value)} ({count})", style=_STYLES[outcome])
        for outcome, count in counted(cell, release)
    )


def _unrun(cell: Cell) -> str:
    return "could not run" if cell.failed else "not there"


def _lines(text: str) -> str:
    """A detail or a note as XML can hold it: its lines stay."""
    return "\n".join(map(printable, text.split("\n")))
