"""A report as table, JSON and JUnit XML."""

from __future__ import annotations

import io
import json
import re
from xml.etree import ElementTree as Xml

import pytest
from rich.console import Console

from pgflow_migrate.replay import render
from pgflow_migrate.replay.matrix import Cell, Matrix
from pgflow_migrate.replay.results import Outcome, Report, Result

GOOD = Result("0.16.0", "good", Outcome.AS_EXPECTED, (), 0.25)
BAD = Result("0.16.0", "bad", Outcome.DIFFERS, ("The audit lacks [x] & <y>.", "A second\x1b thing."), 0.5)
SKIPPED = Result("0.15.0", "left_out", Outcome.SKIPPED, ("It needs PGMQ as extension; here it is sql.",), 0)
BROKEN = Result("0.15.0", "broken", Outcome.COULD_NOT_RUN, ("populate.sql failed",), 0)
REPORT = Report("embedded-18", "sql", (GOOD, BAD, SKIPPED, BROKEN))


def test_the_table_names_each_scenario_and_what_differs() -> None:
    out = io.StringIO()
    render.table(REPORT, Console(file=out, width=30))  # a pipe, which has no width
    assert out.getvalue().splitlines() == [
        "release  scenario  outcome        seconds",
        "0.16.0   good      as expected       0.25",
        "0.16.0   bad       differs           0.50",
        "0.15.0   left_out  skipped           0.00",
        "0.15.0   broken    could not run     0.00",
        "",
        "0.16.0/bad: differs",
        "  The audit lacks [x] & <y>.",
        "  A second\\x1b thing.",
        "",
        "0.15.0/left_out: skipped",
        "  It needs PGMQ as extension; here it is sql.",
        "",
        "0.15.0/broken: could not run",
        "  populate.sql failed",
        "",
        "4 scenarios on embedded-18 with PGMQ as sql: 1 as expected, 1 differs, 1 skipped, 1 could not run.",
    ]


def test_json_is_one_document_with_every_figure() -> None:
    document = json.loads(render.as_json(REPORT))
    assert document["server"] == "embedded-18"
    assert document["pgmq"] == "sql"
    assert document["exit_code"] == 3
    assert document["counts"] == {"as expected": 1, "differs": 1, "skipped": 1, "could not run": 1}
    assert document["seconds"] == 0.75
    assert document["scenarios"][1] == {
        "release": "0.16.0",
        "name": "bad",
        "outcome": "differs",
        "details": list(BAD.details),
        "seconds": 0.5,
    }


def test_junit_has_failures_errors_and_skips_and_is_xml_whatever_the_texts_hold() -> None:
    root = Xml.fromstring(render.junit(REPORT))  # noqa: S314 - our own document
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")  # as every other command's
    assert suite.attrib == {
        "name": "replay on embedded-18 with PGMQ as sql",
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
        "time": "0.750",
    }
    cases = {case.attrib["name"]: case for case in suite}
    assert cases["good"].attrib == {"classname": "replay.0.16.0", "name": "good", "time": "0.250"}
    assert list(cases["good"]) == []
    (failure,) = cases["bad"]
    assert failure.tag == "failure"
    assert failure.attrib["message"] == "The audit lacks [x] & <y>."
    assert failure.text == "The audit lacks [x] & <y>.\nA second\\x1b thing."
    assert [child.tag for child in cases["left_out"]] == ["skipped"]
    assert [child.tag for child in cases["broken"]] == ["error"]


@pytest.mark.parametrize(
    ("results", "code"),
    [((GOOD,), 0), ((GOOD, SKIPPED), 0), ((GOOD, BROKEN), 1), ((BAD, BROKEN), 3), ((), 0)],
)
def test_the_exit_code_tells_a_difference_from_what_could_not_run(
    results: tuple[Result, ...], code: int
) -> None:
    assert Report("s", "sql", results).exit_code == code


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_what_differs_is_wrapped_between_words(width: int) -> None:
    detail = "The upgrade changed what it should keep: " + " ".join(f"column_{n:02}" for n in range(40)) + "."
    report = Report("embedded-18", "sql", (Result("0.16.0", "bad", Outcome.DIFFERS, (detail,), 0.5),))
    out = io.StringIO()
    render.table(report, Console(file=out, width=width, force_terminal=True, no_color=True))
    printed = re.sub("\x1b\\[[0-9;]*m", "", out.getvalue())
    assert max(map(len, printed.splitlines())) <= width
    assert detail in " ".join(printed.split())
    assert "1 scenario on embedded-18" in printed


EVIL = "a\x1b]0;b\x07\n1 database on here: 1 upgrades.\u202ec\ufffe"
WRITTEN_OUT = "a\\x1b]0;b\\x07\\n1 database on here: 1 upgrades.\\u202ec\\ufffe"


def test_whatever_a_label_or_a_name_holds_junit_is_xml() -> None:
    evil = Result(EVIL, EVIL, Outcome.DIFFERS, (EVIL,), 0, (EVIL,))
    report = Report(EVIL, "sql", (evil,))
    unrun = Cell(EVIL, "extension", None, EVIL, failed=True)
    for xml in (render.junit(report), render.grid_junit(Matrix((Cell(EVIL, "sql", report), unrun)))):
        root = Xml.fromstring(xml.encode())  # noqa: S314 - our own document
        suite = root[0]
        assert suite.get("name") == f"replay on {WRITTEN_OUT} with PGMQ as sql"
        case = suite[0]
        assert (case.get("classname"), case.get("name")) == (f"replay.{WRITTEN_OUT}", WRITTEN_OUT)
        # The lines of a detail are its own.
        assert case[0].text == "\n".join(WRITTEN_OUT.split("\\n"))
    assert root[1].get("name") == f"replay on {WRITTEN_OUT} with PGMQ as extension"


def test_no_label_and_no_name_drives_a_terminal_or_adds_a_line_to_a_table() -> None:
    result = Result(EVIL, EVIL, Outcome.AS_EXPECTED, (), 0)
    report = Report(EVIL, "sql", (result,))
    out = io.StringIO()
    render.table(report, Console(file=out, width=500, force_terminal=True, color_system=None))
    assert [line.split("  ")[0].strip() for line in out.getvalue().splitlines()] == [
        "release",
        WRITTEN_OUT,
        "",
        f"1 scenario on {WRITTEN_OUT} with PGMQ as sql: 1 as expected.",
    ]
    out = io.StringIO()
    grid = Matrix((Cell(EVIL, "sql", report), Cell("b", "sql", None, EVIL)))
    render.grid(grid, Console(file=out, width=500, force_terminal=True, color_system=None))
    heading, first, *rest = out.getvalue().splitlines()
    assert heading.endswith(WRITTEN_OUT)
    assert first.startswith(WRITTEN_OUT)
    assert rest[-1] == f"  {WRITTEN_OUT}"
