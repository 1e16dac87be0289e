"""A replay's report as a table, as JSON and as JUnit XML."""

from __future__ import annotations

import json
from xml.etree import ElementTree as Xml

from rich.console import Console
from rich.table import Table
from rich.text import Text

from pgflow_migrate.layout import plural, show
from pgflow_migrate.replay.results import Outcome, Report

_STYLES = {
    Outcome.AS_EXPECTED: "green",
    Outcome.DIFFERS: "bold red",
    Outcome.SKIPPED: "yellow",
    Outcome.COULD_NOT_RUN: "bold red",
}

# JUnit's own words; a scenario as expected has none.
_ELEMENTS = {
    Outcome.DIFFERS: "failure",
    Outcome.SKIPPED: "skipped",
    Outcome.COULD_NOT_RUN: "error",
}


def table(report: Report, console: Console) -> None:
    """Print a line a scenario, what differs below the table, and a summary."""
    lines = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("release", "scenario", "outcome"):
        lines.add_column(heading, no_wrap=True)
    lines.add_column("seconds", justify="right")
    for result in report.results:
        outcome = Text(result.outcome.value, style=_STYLES[result.outcome])
        lines.add_row(Text(result.release), Text(result.name), outcome, f"{result.seconds:.2f}")
    console.print(lines)
    for result in report.results:
        if result.details:
            console.print(Text(f"\n{result.id}: {result.outcome.value}", style=_STYLES[result.outcome]))
            for detail in result.details:
                for line in _printable(detail).split("\n"):
                    show(console, line, indent="  ")
    console.print()
    show(console, summary(report))


def summary(report: Report) -> str:
    """One sentence: how many ended how, and where."""
    counts = ", ".join(
        f"{report.count(outcome)} {outcome.value}" for outcome in Outcome if report.count(outcome)
    )
    scenarios = plural(len(report.results), "scenario")
    return f"{scenarios} on {report.server} with PGMQ as {report.pgmq}: {counts}."


def as_json(report: Report) -> str:
    """One JSON document."""
    document = {
        "server": report.server,
        "pgmq": report.pgmq,
        "exit_code": report.exit_code,
        "counts": {outcome.value: report.count(outcome) for outcome in Outcome},
        "seconds": round(report.seconds, 3),
        "scenarios": [
            {
                "release": result.release,
                "name": result.name,
                "outcome": result.outcome.value,
                "details": list(result.details),
                "seconds": round(result.seconds, 3),
            }
            for result in report.results
        ],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def junit(report: Report) -> str:
    """JUnit XML: a test suite a replay, a test case a scenario."""
    suite = Xml.Element(
        "testsuite",
        name=f"replay on {report.server} with PGMQ as {report.pgmq}",
        tests=str(len(report.results)),
        failures=str(report.count(Outcome.DIFFERS)),
        errors=str(report.count(Outcome.COULD_NOT_RUN)),
        skipped=str(report.count(Outcome.SKIPPED)),
        time=f"{report.seconds:.3f}",
    )
    for result in report.results:
        case = Xml.SubElement(
            suite,
            "testcase",
            classname=f"replay.{result.release}",
            name=result.name,
            time=f"{result.seconds:.3f}",
        )
        if result.outcome in _ELEMENTS:
            told = Xml.SubElement(case, _ELEMENTS[result.outcome], message=_printable(result.details[0]))
            told.text = _printable("\n".join(result.details))
    Xml.indent(suite)
    return Xml.tostring(suite, encoding="unicode", xml_declaration=True)


def _printable(text: str) -> str:
    """Without control characters: XML 1.0 cannot write them, and a terminal would obey them."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text
    )
