"""A replay's HTML page and a matrix's grid."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as Xml

import psycopg
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from rich.console import Console

from pgflow_migrate import database
from pgflow_migrate.cli import main
from pgflow_migrate.errors import PgflowMigrateError
from pgflow_migrate.replay import matrix, page, render
from pgflow_migrate.replay.matrix import Cell, Matrix
from pgflow_migrate.replay.results import Outcome, Report, Result
from pgflow_migrate.servers import How, Server

HOSTILE = '"><script>alert(1)</script>{{ 7 * 7 }}'
GOOD = Result("0.16.0", "good", Outcome.AS_EXPECTED, (), 0.25)
SKIPPED = Result("0.15.0", "left_out", Outcome.SKIPPED, ("It needs PGMQ as extension; here it is sql.",), 0)
BLOCKED = Result(
    "0.16.0",
    f"{HOSTILE}.export",
    Outcome.BLOCKED,
    (f"queue-absent (flow {HOSTILE}): 1\nCreate the queue: select pgmq.create('orders'); So it is.",),
    2.5,
    (f"Not in the file: {HOSTILE}",),
)
FILE = Report("embedded-18", "sql", (BLOCKED,), "database")
GRID = Matrix(
    (
        Cell("embedded-16", "extension", Report("embedded-16", "extension", (SKIPPED, GOOD, GOOD))),
        Cell("embedded-16", "sql", FILE),
        Cell("nowhere", "extension", None, "This server has no extension pgmq."),
        Cell("nowhere", "sql", None, "No server listens.", failed=True),
    )
)


class _Page(HTMLParser):
    """The elements of a page, and the text of its body."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("html", [page.html(FILE), page.grid_html(GRID)])
def test_the_page_shows_all_of_it_as_text_and_loads_nothing(html: str) -> None:
    found = _Page(html)
    for text in (
        BLOCKED.name,
        BLOCKED.notes[0],
        f"(flow {HOSTILE})",
        "select pgmq.create('orders');",
        "2.50",
    ):
        assert text in found.text
    assert f"1 database is blocked by findings of the audit: {BLOCKED.id}." in found.text
    assert [tag for tag, _ in found.tags].count("script") == 1  # the frame's own
    for _, attributes in found.tags:
        assert not {"src", "onload", "onclick"} & attributes.keys()
        assert (attributes.get("href") or "#").startswith("#")
    (policy,) = (a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert (policy or "").startswith("default-src 'none';")


def test_what_is_wrong_stands_apart_from_what_to_do_and_only_our_statements_are_to_copy() -> None:
    text = page.html(FILE)
    assert "<pre><code>select pgmq.create(&#39;orders&#39;);</code></pre>" in text
    assert "<p>Create the queue:</p>" in text
    sneaky = Result(
        "0.16.0",
        "x",
        Outcome.DIFFERS,
        ("slug-invalid (flow x: drop table y;): 1\na: drop table z;\nDo: select pgmq.create('x\\ny');",),
        1,
        ("Rebuilt: drop table w;",),
    )
    assert "<pre>" not in page.html(Report("here", "sql", (sneaky,), "database"))


@pytest.mark.parametrize(
    ("reports", "says"),
    [
        ((Report("s", "sql", (GOOD, GOOD)),), "2 scenarios come out as they must."),
        ((Report("s", "sql", ()),), "Nothing was replayed."),
        (
            (Report("s", "sql", (GOOD, SKIPPED, replace(GOOD, name="odd", outcome=Outcome.DIFFERS))),),
            "1 scenario does not come out as it must: 0.16.0/odd. 1 scenario was skipped. "
            "1 scenario comes out as it must.",
        ),
        (
            (
                Report(
                    "s", "sql", tuple(replace(GOOD, name=f"{n}", outcome=Outcome.DIFFERS) for n in range(6))
                ),
            ),
            "6 scenarios do not come out as they must.",
        ),
    ],
)
def test_the_summary_says_which(reports: tuple[Report, ...], says: str) -> None:
    assert page._verdict(reports, None) == says


def test_the_summary_writes_out_what_does_not_show() -> None:
    name = "good\u202e\x1b\nAll is well"
    odd = Result("0.16.0", name, Outcome.DIFFERS, (), 1)
    unrun = Cell(name, "sql", None, "", failed=True)
    for html in (
        page.html(Report("s", "sql", (odd,))),
        page.grid_html(Matrix((Cell("s", "extension", Report("s", "extension", (odd,))), unrun))),
    ):
        shown = _Page(html).text
        assert ": 0.16.0/good\\u202e\\x1b\\nAll is well." in shown
        assert not {"\u202e", "\x1b"} & set(shown)
    assert "Could not be used: good\\u202e\\x1b\\nAll is well with PGMQ as sql." in shown


def test_the_summary_of_a_matrix_names_the_servers_that_were_not_there() -> None:
    assert page._verdict(tuple(cell.report for cell in GRID.cells if cell.report), GRID).endswith(
        " Could not be used: nowhere with PGMQ as sql. Not there: nowhere with PGMQ as extension."
    )


def test_the_grid_has_a_line_a_server_and_form_and_a_column_a_release() -> None:
    out = io.StringIO()
    render.grid(GRID, Console(file=out, width=40))  # a pipe, which has no width
    lines = out.getvalue().splitlines()
    assert lines[:5] == [
        "server       PGMQ       0.15.0         0.16.0",
        "embedded-16  extension  skipped (1)    ok (2)",
        "embedded-16  sql                       blocked (1)",
        "nowhere      extension  not there      not there",
        "nowhere      sql        could not run  could not run",
    ]
    assert f"embedded-16, PGMQ as sql, {BLOCKED.id}: blocked" in lines
    assert "  No server listens." in lines
    document = json.loads(render.grid_json(GRID))
    assert document["exit_code"] == 3
    assert document["releases"] == ["0.15.0", "0.16.0"]
    assert [cell["status"] for cell in document["cells"]] == ["ran", "ran", "not there", "could not run"]
    assert document["cells"][1]["report"]["databases"][0]["outcome"] == "blocked"
    suites = Xml.fromstring(render.grid_junit(GRID).encode())  # noqa: S314 - our own document
    counts = [tuple(suite.get(key) for key in ("tests", "failures", "errors", "skipped")) for suite in suites]
    assert counts == [
        ("3", "0", "0", "1"),
        ("1", "1", "0", "0"),
        ("1", "0", "0", "1"),
        ("1", "0", "1", "0"),
    ]


@pytest.mark.parametrize(
    ("cells", "code"),
    [(GRID.cells[:1], 0), (GRID.cells[:2], 3), ((*GRID.cells[:1], GRID.cells[3]), 1), (GRID.cells[2:3], 1)],
)
def test_the_worst_decides_on_the_exit_code(cells: tuple[Cell, ...], code: int) -> None:
    assert Matrix(cells).exit_code == code


def test_what_cannot_run_does_not_stop_the_others(server: Server) -> None:
    seen: list[tuple[str, How]] = []

    def play(on: Server, form: How) -> Report:
        seen.append((on.label, form))
        if form == "extension":
            raise PgflowMigrateError("It broke.")
        return Report(on.label, form, (GOOD,))

    made = matrix.run(["embedded:1", server.admin_dsn], matrix.FORMS, play)
    assert [form for _, form in seen] == ["extension", "sql"]
    told = [(cell.pgmq, cell.failed, cell.reason.partition(".")[0]) for cell in made.cells]
    assert told == [
        ("extension", True, "PostgreSQL 1 is not installed as an embedded server"),
        ("sql", True, "PostgreSQL 1 is not installed as an embedded server"),
        ("extension", True, "It broke"),
        ("sql", False, ""),
    ]


def test_what_the_server_or_the_machine_raises_is_told_in_its_own_cell(server: Server) -> None:
    """Not only errors of ours: a disk that is full, a right that is lacking, a server that has gone."""

    def denied(on: Server) -> None:
        with psycopg.connect(on.admin_dsn, autocommit=True) as connection:
            connection.execute("set role pg_monitor")
            connection.execute("create database never")

    def gone(on: Server) -> None:
        with psycopg.connect(on.admin_dsn, autocommit=True) as connection:
            connection.execute("select pg_terminate_backend(pg_backend_pid())")

    def wrapped(on: Server) -> None:
        engine = database.engine(on.admin_dsn)
        with engine.connect() as connection:
            connection.execute(sa.text("select 1 / 0"))

    def unread(on: Server) -> None:
        Path("/nowhere/baseline.sql").read_bytes()

    trouble = {"denied": denied, "gone": gone, "wrapped": wrapped, "unread": unread}
    left = iter(trouble.values())

    def play(on: Server, form: How) -> Report:
        for raising in left:
            raising(on)
        return Report(on.label, form, (GOOD,))

    seen: list[Cell] = []
    made = matrix.run([server.admin_dsn] * 5, ["sql"], play, seen.append)
    told = "The replay on {} could not go on: "
    label = made.cells[0].server
    assert [(cell.failed, cell.reason) for cell in made.cells] == [
        (True, f"{told.format(label)}permission denied to create database (SQLSTATE 42501)."),
        (
            True,
            f"{told.format(label)}terminating connection due to administrator command (SQLSTATE 57P01).",
        ),
        (True, f"{told.format(label)}division by zero (SQLSTATE 22012)."),
        (True, f"{told.format(label)}No such file or directory: /nowhere/baseline.sql."),
        (False, ""),
    ]
    assert made.cells == tuple(seen)
    assert made.exit_code == 1


def test_what_cannot_be_dropped_at_the_end_is_told_and_the_report_stays(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextlib.contextmanager
    def leaving(kind: str) -> Iterator[Server]:
        yield server
        raise psycopg.errors.ObjectInUse("it is in use")

    monkeypatch.setattr(matrix, "open_server", leaving)
    made = matrix.run(["x"], ["sql"], lambda on, form: Report(on.label, form, (GOOD,)))
    (cell,) = made.cells
    assert cell.report == Report(server.label, "sql", (GOOD,))
    sentence = "The replay on the server could not go on: it is in use (SQLSTATE 55006)."
    assert (cell.failed, cell.reason, made.exit_code) == (True, sentence, 1)
    out = io.StringIO()
    render.grid(made, Console(file=out, width=40))
    assert out.getvalue().splitlines()[-2:] == [
        f"{server.label}, PGMQ as sql: failed afterwards",
        f"  {sentence}",
    ]
    assert "ok (1)" in out.getvalue()
    assert (
        f"{server.label} with PGMQ as sql failed afterwards: {sentence}" in _Page(page.grid_html(made)).text
    )
    suites = Xml.fromstring(render.grid_junit(made).encode())  # noqa: S314 - our own document
    assert [(suite.get("tests"), suite.get("errors")) for suite in suites] == [("1", "0"), ("1", "1")]


def test_the_command_prints_one_grid(server: Server) -> None:
    arguments = ["--on", server.admin_dsn, "--pgmq", "sql", "--release", "0.16.0", "--scenario", "empty_flow"]
    result = CliRunner().invoke(main, ["replay", "--matrix", *arguments])
    assert result.exit_code == 0, result.output
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["server", "PGMQ", "0.16.0"],
        [result.stdout.splitlines()[1].split()[0], "sql", "ok", "(1)"],
    ]
    assert "1 scenario on " in result.stderr
