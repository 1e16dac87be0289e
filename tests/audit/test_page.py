"""The HTML report: to machines that check it, and in a browser."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timezone
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.audit import chromium

from pgflow_migrate.audit import AuditReport, Finding, LostMessages, render
from pgflow_migrate.audit.codes import CODES
from pgflow_migrate.audit.outlook import Outlook, QueueHealth, Step
from pgflow_migrate.audit.render import page as rendering

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "audit-page.png"

OWN = "document.title='owned'"
HOSTILE = (
    f"<script>{OWN}</script>",
    f'"><img src=x onerror="{OWN}">',
    f"</style></title><script>{OWN}</script>",
    f"<svg onload={OWN}>",
    "'); drop table runs; --",
    "\u202eright to left\x07",
)


def _statement(slug: str) -> str:
    """As the audit's hints have it: the name quoted."""
    return "select pgmq.create('" + slug.replace("'", "''") + "');"


def _finding(number: int, code: str) -> Finding:
    slug = HOSTILE[number % len(HOSTILE)]
    return Finding(
        CODES[code].severity,
        code,
        f"flow {number} {slug}",
        f"step {number} {slug}",
        f"queue_{number}",
        1000 + number,
        (f"sample {number} {slug}",),
        f"Hint {number}: {_statement(slug)} That is all.",
    )


# Not those with characters that cannot be shown, nor that of a hint which is not the audit's own.
STATEMENTS = [
    _statement(HOSTILE[number % len(HOSTILE)])
    for number, code in enumerate(CODES)
    if "\u202e" not in HOSTILE[number % len(HOSTILE)] and code != "queue-referenced-by-other-flow"
]
REPORT = AuditReport(
    tuple(_finding(number, code) for number, code in enumerate(CODES)),
    f"shop {HOSTILE[0]}",
    "18.1",
    datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
)
QUEUES = (
    QueueHealth("busy", "busy", 1200, 34, 90000.0, None, 1200, 34, 5),
    QueueHealth("empty", "empty", 0, 0, None, None, 0, 0, 0),
    QueueHealth(HOSTILE[1], "queue_0", None, None, None, "this role may not read it", 1, 0, 0),
)
OUTLOOK = Outlook(
    release="0.16.0",
    revisions=("queue_identity", "dirty_runs"),
    obstacle=None,
    steps=(
        Step("queue_identity", "give tasks their queue's name: rows written", 1_234_567, 250_000_000),
        Step("dirty_runs", "add the tables"),
    ),
    seconds=12.3,
    queues=QUEUES,
    unread=None,
)


class _Page(HTMLParser):
    """What a browser, a screen reader or a checker sees of a page."""

    VOID = {"meta", "link", "img", "br", "hr", "input", "rect", "path"}

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.words = ""
        self.title = ""
        self.statements: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in self.VOID:
            self._open.append(tag)
        if tag == "pre":
            self.statements.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if "title" in self._open and "svg" not in self._open:
            self.title += data
        elif not {"style", "script"} & set(self._open):
            self.words += data
        if "pre" in self._open:
            self.statements[-1] += data

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.tags if name == tag]


def _shown(text: str) -> str:
    return text.replace("\u202e", "\\u202e").replace("\x07", "\\x07")


@pytest.fixture(scope="module")
def text() -> str:
    return render.html(REPORT, OUTLOOK)


@pytest.fixture(scope="module")
def page(text: str) -> _Page:
    return _Page(text)


@pytest.fixture(scope="module")
def file(text: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "audit.html"
    path.write_text(text, encoding="utf-8")
    return path


def _has_everything(page: _Page) -> None:
    """Every finding and number is there, and what is hostile is there as text."""
    assert page.title == f"pgflow audit: {REPORT.database}"
    assert {"img", "b", "iframe", "link", "object", "form"}.isdisjoint(tag for tag, _ in page.tags)
    assert len(page.all("script")) == len(page.all("style")) == 1
    for finding in REPORT.findings:
        for part in (
            finding.code,
            CODES[finding.code].title,
            f"{finding.count:,}",
            *map(_shown, (finding.flow_slug or "", finding.step_slug or "", *finding.samples)),
            finding.queue_name or "",
        ):
            assert part in page.words
    assert sorted(page.statements) == sorted(STATEMENTS)
    for number in (
        "1,200 ready, 34 hidden",
        "1 d",
        "this role may not read it",
        "1,234,567",
        "250.0 MB",
        "12 s",
    ):
        assert number in page.words


def test_every_finding_is_on_the_page_and_names_stay_text(page: _Page) -> None:
    _has_everything(page)


def test_the_page_loads_nothing_and_runs_nothing_but_its_own_script(text: str, page: _Page) -> None:
    assert "http:" not in text
    assert "https:" not in text
    attributes = {name for _, all_ in page.tags for name in all_}
    assert {"src", "srcset", "style", "action"}.isdisjoint(attributes)
    assert not [name for name in attributes if name.startswith("on")]
    assert all(link["href"].startswith("#") for link in page.all("a"))
    (policy,) = [m["content"] for m in page.all("meta") if m.get("http-equiv") == "Content-Security-Policy"]
    assert re.fullmatch(
        r"default-src 'none'; style-src 'sha256-\S+'; script-src 'sha256-\S+';"
        " base-uri 'none'; form-action 'none'",
        policy,
    )
    assert not re.search(r"url\((?!#)|@import", text)


def test_the_page_can_be_walked_through_by_headings_landmarks_and_links(page: _Page) -> None:
    assert page.all("html") == [{"lang": "en"}]
    for landmark in ("header", "nav", "main", "footer"):
        assert len(page.all(landmark)) == 1
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    named = [attributes["aria-labelledby"] for _, attributes in page.tags if "aria-labelledby" in attributes]
    assert {name for names in named for name in names.split()} <= set(ids)
    assert {link["href"][1:] for link in page.all("a")} <= set(ids)
    links_and_stops = [a for tag, a in page.tags if tag == "a" or a.get("tabindex") == "0"]
    assert links_and_stops[0] == {"class": "skip", "href": "#main"}
    assert not [a for _, a in page.tags if a.get("tabindex", "0") not in ("0", "-1")]
    assert all("scope" in heading for heading in page.all("th"))


def test_the_chart_says_in_words_what_it_shows(text: str, page: _Page) -> None:
    (chart,) = [attributes for attributes in page.all("div") if attributes.get("role") == "img"]
    assert chart["aria-labelledby"] == "chart-title chart-text"
    told = re.search('<p hidden id="chart-text">(.*?)</p>', text)
    assert told is not None
    assert _Page(told[1]).words == (
        f"{HOSTILE[1][:25]}…: this role may not read it;"
        " busy: 1,200 ready, 34 hidden; empty: 0 ready, 0 hidden"
    )


def test_severities_differ_by_word_and_sign_not_by_colour_alone(page: _Page) -> None:
    for sign_and_word in ("✕ error", "! warning", "i info"):
        assert sign_and_word in page.words


def _luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _palettes() -> Iterator[dict[str, str]]:
    style = (ROOT / "src/pgflow_migrate/audit/render/templates/page.css").read_text(encoding="utf-8")
    for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL):
        yield {
            name: "#" + "".join(digit * 2 for digit in value) if len(value) == 3 else f"#{value}"
            for name, value in re.findall(r"--([a-z]+): #([0-9a-f]+);", block)
        }


@pytest.mark.parametrize(("palette"), list(_palettes()), ids=["light", "dark", "print"])
def test_every_colour_stands_out_from_its_ground(palette: dict[str, str]) -> None:
    def contrast(one: str, other: str) -> float:
        light, dark = sorted((_luminance(palette[one]), _luminance(palette[other])), reverse=True)
        return (light + 0.05) / (dark + 0.05)

    for ground in ("paper", "panel"):
        for text in ("ink", "soft", "error", "warning", "info", "good", "link"):
            assert contrast(text, ground) >= 4.5, (text, ground)
        for shape in ("ready", "hidden"):
            assert contrast(shape, ground) >= 3, (shape, ground)


def test_a_statement_that_does_not_copy_as_it_reads_is_no_statement() -> None:
    good = "Create it: select pgmq.create('a;''b'); and so on. Or: select 1; select 2;"
    assert rendering.parts(good, "queue-absent") == [
        (False, "Create it:"),
        (True, "select pgmq.create('a;''b');"),
        (False, "and so on. Or:"),
        (True, "select 1;\nselect 2;"),
    ]
    hidden = "Create it: select pgmq.create('a\u202eb');"
    assert [is_statement for is_statement, _ in rendering.parts(hidden, "slug-invalid")] == [False, False]


def test_what_messages_say_is_never_offered_as_a_statement() -> None:
    archive = "select pgmq.archive('orders', array[7]::bigint[]);"
    for slug in ("x: delete from pgflow.runs where true --", "x: delete from pgflow.runs;", "x: select '"):
        hint = (
            f"These messages name another flow ({slug}). Move them where they belong, or archive them:"
            f" {archive}"
        )
        assert rendering.parts(hint, "queue-referenced-by-other-flow") == [
            (False, hint.removesuffix(f" {archive}")),
            (True, archive),
        ]


def test_ages_and_sizes_are_for_people() -> None:
    assert [rendering.age(n) for n in (None, -3, 59.9, 60, 7200, 200000)] == [
        *("none", "0 s", "59 s", "1 min", "2 h", "2 d")
    ]
    assert [rendering.size(n) for n in (0, 999, 1000, 8192, 1_500_000, 2 * 10**9, 3 * 10**15)] == [
        *("0 B", "999 B", "1.0 kB", "8.2 kB", "1.5 MB", "2.0 GB", "3,000.0 TB")
    ]
    assert [rendering.duration(n) for n in (0.4, 12.3, 119, 600)] == [
        *("less than a second", "12 s", "119 s", "10 min")
    ]


@pytest.mark.parametrize(
    ("outlook", "says"),
    [
        (
            replace(OUTLOOK, revisions=None, obstacle="It is <b>odd</b>."),
            "Nothing: it would refuse. It is <b>odd</b>.",
        ),
        (replace(OUTLOOK, revisions=()), "Nothing: the database is at the newest revision."),
        (
            replace(OUTLOOK, steps=(), seconds=None, queues=(), unread="permission denied for table runs"),
            "They could not be read: permission denied for table runs.",
        ),
        (replace(OUTLOOK, queues=()), "There are no flows."),
        (
            replace(OUTLOOK, queues=tuple(replace(QUEUES[1], flow_slug=f"f{n}") for n in range(22))),
            "The 20 fullest queues; 2 others are in the table alone.",
        ),
    ],
)
def test_what_is_not_known_is_said(outlook: Outlook, says: str) -> None:
    assert says in _Page(render.html(REPORT, outlook)).words


def test_bars_and_rows_have_one_order_and_letters_their_size(text: str) -> None:
    bars = re.findall('<span class="label">(.*?)</span>', text)
    (table,) = re.findall("in the order of the bars.*?</table>", text, re.DOTALL)
    rows = re.findall('<th scope="row"><code>(.*?)</code>', table)
    assert len(bars) == len(rows) == 3
    assert [bar[:4] for bar in bars] == [row[:4] for row in rows]
    assert re.findall('<rect class="ready" width="([0-9.]+%)"', text) == ["0.0%", "97.2%", "0.0%"]
    assert "viewBox" not in text


def test_flows_whose_tasks_lost_their_messages_are_marked() -> None:
    lost = LostMessages("empty", "empty", 1, ("x/y/0",))
    text = render.html(replace(REPORT, lost=(lost,)), OUTLOOK)
    assert re.findall('<tr class="lost">\n<th scope="row"><code>(.*?)</code>', text) == ["empty"]
    assert "1 live task has no message" in text
    assert '<p class="lost">1 live task has no message in the queue: it will never run' in text
    assert 'class="lost"' not in render.html(REPORT, OUTLOOK)


def test_without_an_outlook_its_parts_are_left_out() -> None:
    page = _Page(render.html(replace(REPORT, findings=())))
    assert "No errors, no warnings." in page.words
    assert "Queues" not in page.words
    assert page.all("svg") == []


@pytest.mark.skipif(
    chromium.program() is None and not os.environ.get("CI"),
    reason="there is no Chromium (Debian: apt install chromium); CI runs this",
)
def test_a_browser_shows_every_finding_and_runs_nothing_of_theirs(file: Path) -> None:
    shown = chromium.document(file)
    page = _Page(shown)
    buttons = [label["aria-label"] for label in page.all("button")]
    # They are made by the page's own script, so scripts do run here.
    assert sorted(buttons) == sorted(f"Copy the statement {text[:80]}" for text in STATEMENTS)
    _has_everything(page)
    KEPT.parent.mkdir(exist_ok=True)
    chromium.picture(file, KEPT, width=1000, height=1500)
    assert KEPT.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert KEPT.stat().st_size > 50_000


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "less than a second"),
        (0.999, "less than a second"),
        (1.0, "1 s"),
        (119.4, "119 s"),
        (120.0, "2 min"),
        (3540.0, "59 min"),
    ],
)
def test_an_estimate_is_no_more_exact_than_it_is(seconds: float, text: str) -> None:
    assert rendering.duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_900, "999.9 kB"),
        (1_000_000, "1.0 MB"),
        (1_000_000_000, "1.0 GB"),
        (1_000_000_000_000, "1.0 TB"),
        (1_234_500_000_000_000, "1,234.5 TB"),
    ],
)
def test_bytes_have_the_unit_that_keeps_them_short(number: int, text: str) -> None:
    assert rendering.size(number) == text


def test_each_queue_names_what_is_found_of_it() -> None:
    """By its own name or its flow's; infos are nothing that is found."""
    findings = (
        Finding("info", "backfill-tasks", "busy", None, "busy", 3, (), ""),
        Finding("error", "message-without-task", None, None, "busy", 1, (), ""),
        Finding("error", "slug-double-underscore", "Empty", None, None, 1, (), ""),
        Finding("warning", "queue-malformed", "empty", None, "empty", 1, (), ""),
    )
    page = render.html(replace(REPORT, findings=findings), replace(OUTLOOK, queues=QUEUES))
    table = page.partition('<h2 id="queues">')[2].partition("</table>")[0]
    rows = [part.partition("</td>") for part in table.split('<td class="name"><code>')[1:]]
    found = {row[0]: re.findall('href="#([^"]*)"', row[2].partition("</td>")[0]) for row in rows}
    assert found == {
        "queue_0</code>": [],
        "busy</code>": ["message-without-task"],
        "empty</code>": ["slug-double-underscore", "queue-malformed"],
    }
