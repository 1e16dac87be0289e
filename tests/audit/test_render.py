"""The forms of a report, on findings with names made to break each of them."""

from __future__ import annotations

import io
import json
import re
from datetime import datetime, timezone
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from pgflow_migrate.audit import AuditReport, Finding, render
from pgflow_migrate.audit.codes import CODES
from pgflow_migrate.audit.render import words

HOSTILE = "a%b\r\n::error::x,y:z\x1b[31m <b>&]]> [red]\u202e"
SHOWN = "a%b\\r\\n::error::x,y:z\\x1b[31m <b>&]]> [red]\\u202e"


def finding(code: str, flow: str | None = None, **others: object) -> Finding:
    values: dict[str, object] = {
        "step_slug": None,
        "queue_name": None,
        "count": 1,
        "samples": (),
        "hint": "Mend it.",
    }
    return Finding(severity=CODES[code].severity, code=code, flow_slug=flow, **{**values, **others})  # type: ignore[arg-type]


def report(*findings: Finding) -> AuditReport:
    return AuditReport(findings, "shop", "18.1", datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc))


CLEAN = report(finding("backfill-tasks", "orders", queue_name="orders", count=7), finding("point-in-time"))
BLOCKED = report(
    finding("queue-absent", "Orders", queue_name="orders", hint="select pgmq.create('Orders');"),
    finding("slug-invalid", HOSTILE, hint=HOSTILE),
    finding("step-slug-case-duplicate", "orders", step_slug="Pack", samples=("pack",)),
    finding("prune-helper-stock", samples=("pgflow.prune_data_older_than(interval)",)),
    finding(
        "null-message-id", "orders", queue_name="orders", count=21, samples=tuple("abcdefghijklmnopqrst")
    ),
)
AT = "of the upgrade of database shop at 2026-01-02 03:04:05 UTC."
POINT = (
    f"{AT} This is a point-in-time report, not an authorisation: the upgrade checks again under its locks."
)
EVERY_FORM = [
    pytest.param(lambda r: printed(r), id="table"),
    pytest.param(lambda r: json.dumps(render.document(r)), id="json"),
    pytest.param(render.junit, id="junit"),
    pytest.param(render.github, id="github"),
    pytest.param(render.html, id="html"),
]


def printed(of: AuditReport, *, width: int = 40, terminal: bool = False) -> str:
    file = io.StringIO()
    render.table(of, Console(file=file, width=width, force_terminal=terminal, highlight=False))
    return file.getvalue()


def test_a_report_gives_its_findings_by_severity() -> None:
    names = [tuple(one.code for one in BLOCKED.of(severity)) for severity in ("error", "warning", "info")]
    assert names == [
        ("queue-absent", "slug-invalid", "step-slug-case-duplicate"),
        ("prune-helper-stock",),
        ("null-message-id",),
    ]
    assert BLOCKED.blocking == BLOCKED.of("error")
    assert (BLOCKED.already_upgraded, report(finding("already-upgraded")).already_upgraded) == (False, True)


def test_a_hint_is_of_a_group_when_all_of_it_have_it() -> None:
    alike = finding("queue-absent", "a"), finding("queue-absent", "b")
    (group,) = words.groups(alike)
    assert (group.findings, group.hint) == (alike, "Mend it.")
    (group,) = words.groups([*alike, finding("queue-absent", "c", hint="Another.")])
    assert group.hint is None


@pytest.mark.parametrize("form", EVERY_FORM)
def test_a_clean_report_says_that_it_is_of_one_point_in_time(form: object) -> None:
    assert callable(form)
    assert f"Nothing stands in the way {POINT}" in form(CLEAN)


@pytest.mark.parametrize("form", [form for form in EVERY_FORM if form.id != "json"])
def test_people_are_told_once_that_it_is_no_authorisation(form: object) -> None:
    assert callable(form)
    hint = "A point-in-time report, not an authorisation: the upgrade checks all of this again."
    told = form(report(finding("point-in-time", samples=("0 errors, 0 warnings",), hint=hint)))
    assert told.count("authorisation") == 1
    assert "0 errors, 0 warnings" in told
    # Of an upgraded database the verdict says something else.
    upgraded = form(report(finding("already-upgraded"), finding("point-in-time", hint="A report.")))
    assert "A report." in upgraded


@pytest.mark.parametrize("form", EVERY_FORM)
def test_no_form_lets_control_characters_through(form: object) -> None:
    assert callable(form)
    text = form(BLOCKED)
    assert not {"\x1b", "\r", "\u202e"} & set(text)


def test_the_table_groups_by_code_the_worst_first_and_cuts_nothing() -> None:
    assert printed(BLOCKED).splitlines() == [
        "error   slug-invalid: a slug breaks the rule that was always there",
        f"  flow {SHOWN}",
        f"  {SHOWN}",
        "",
        "error   step-slug-case-duplicate: step slugs of a flow differ only in case",
        "  flow orders, step Pack: pack",
        "  Mend it.",
        "",
        "error   queue-absent: a flow has no queue",
        "  flow Orders, queue orders",
        "  select pgmq.create('Orders');",
        "",
        "warning prune-helper-stock: the documented pruning helper is installed",
        "  pgflow.prune_data_older_than(interval)",
        "  Mend it.",
        "",
        "info    null-message-id: tasks without a message",
        "  flow orders: 21: " + "; ".join("abcdefghijklmnopqrst") + "; …",
        "  Mend it.",
        "",
        "What to do, the worst first:",
        "  Rename the flow or step, in code and database, once the flow's runs have ended."
        " For slug-invalid (1).",
        "  Rename the step, in code and database, once the flow's runs have ended."
        " For step-slug-case-duplicate (1).",
        "  Create the missing queue, and move its sequence above the ids that tasks have."
        " For queue-absent (1).",
        "  Replace the helper after the upgrade: pgflow-migrate prune-helper --sql prints its replacement."
        " For prune-helper-stock (1).",
        "",
        f"3 findings stand in the way {POINT}",
    ]


def test_what_to_do_is_told_once_more_where_it_takes_more_than_one_hint() -> None:
    grants = [
        finding("missing-privilege", hint=f"grant select on pgflow.{table} to auditor;")
        for table in ("flows", "runs")
    ]
    assert printed(report(*grants)).splitlines()[-4:-2] == [
        "What to do:",
        "  Give the role the rights that the hints name, or run as the owner. For missing-privilege (2).",
    ]
    assert "What to do" not in printed(report(grants[0]))


def test_the_worst_is_what_hides_the_rest_then_what_there_is_most_of() -> None:
    of = report(
        *(finding("queue-absent", f"flow_{number}", hint=f"Create {number}.") for number in (1, 2, 3)),
        finding("slug-trailing-underscore", "a_"),
        finding("missing-privilege", hint="grant select on pgmq.meta to auditor;"),
        finding("slug-leading-underscore", "_a"),
    )
    lines = printed(of).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("error ")] == [
        "missing-privilege:",
        "queue-absent:",
        "slug-leading-underscore:",
        "slug-trailing-underscore:",
    ]
    start = lines.index("error   queue-absent: a flow has no queue")
    assert lines[start + 1 : start + 8] == [
        *("  flow flow_1", "  Create 1.", "  flow flow_2", "  Create 2.", "  flow flow_3", "  Create 3."),
        "",
    ]
    assert lines[-3] == (
        "  Rename the flow or step, in code and database, once the flow's runs have ended."
        " For slug-leading-underscore (1), slug-trailing-underscore (1)."
    )


def test_on_a_terminal_of_40_columns_nothing_is_wider_but_single_words() -> None:
    text = printed(BLOCKED, width=40, terminal=True)
    lines = re.sub("\x1b\\[[0-9;]*m", "", text).splitlines()
    start = lines.index("error   step-slug-case-duplicate")
    assert lines[start : start + 3] == [
        "error   step-slug-case-duplicate",
        "        step slugs of a flow differ only",
        "        in case",
    ]
    assert [line for line in lines if len(line) > 40 and " " in line.strip()] == []


def test_no_color_leaves_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(BLOCKED, terminal=True)
    styles = {style for found in re.findall("\x1b\\[([0-9;]*)m", text) for style in found.split(";")}
    assert styles == {"0", "1", "2"}  # bold and dim, which are no colours


def test_the_table_sums_up_many_infos_but_lists_every_error() -> None:
    many = [finding("backfill-tasks", f"flow_{number:02}", count=number) for number in range(1, 15)]
    lines = printed(report(*many)).splitlines()
    assert lines[1:4] == ["  flow flow_01: 1", "  flow flow_02: 2", "  flow flow_03: 3"]
    assert lines[11:13] == ["  and 4 more like these, together 50", "  Mend it."]
    errors = [finding("queue-absent", f"flow_{number:02}") for number in range(1, 15)]
    assert len(printed(report(*errors)).splitlines()) == 1 + 14 + 1 + 1 + 1


def test_the_table_has_colours_on_a_terminal_only() -> None:
    assert "\x1b[1;31merror" in printed(BLOCKED, terminal=True)
    assert "\x1b" not in printed(BLOCKED)


def test_json_holds_everything_exactly() -> None:
    document = json.loads(json.dumps(render.document(BLOCKED)))
    assert document["status"] == "blocked"
    assert (document["database"], document["server"]) == ("shop", "18.1")
    assert document["taken_at"] == "2026-01-02T03:04:05+00:00"
    assert document["counts"] == {"error": 3, "warning": 1, "info": 1}
    assert document["note"] == f"3 findings stand in the way {POINT}"
    assert [Finding.from_row(row) for row in document["findings"]] == list(BLOCKED.findings)
    assert render.document(CLEAN)["status"] == "clean"


def test_junit_has_a_case_for_every_code_and_fails_those_with_errors() -> None:
    suite = ET.fromstring(render.junit(BLOCKED)).find("testsuite")  # noqa: S314 - our own text
    assert suite is not None
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == list(CODES)
    failed = {
        case.get("name"): case.findtext("failure") for case in cases if case.find("failure") is not None
    }
    assert failed == {
        "queue-absent": "flow Orders, queue orders. select pgmq.create('Orders');",
        "slug-invalid": f"flow {SHOWN}. {SHOWN}",
        "step-slug-case-duplicate": "flow orders, step Pack: pack. Mend it.",
    }
    said = {case.get("name") for case in cases if case.find("system-out") is not None}
    assert said == {"prune-helper-stock", "null-message-id"}
    assert suite.attrib == {
        "name": "pgflow-migrate audit",
        "tests": str(len(CODES)),
        "failures": "3",
        "errors": "0",
        "skipped": "0",
        "timestamp": "2026-01-02T03:04:05+00:00",
    }
    (told,) = suite.findall("properties/property")
    assert told.attrib == {"name": "database", "value": "shop"}


def test_github_annotations_are_one_line_each_and_escaped() -> None:
    lines = render.github(BLOCKED).splitlines()
    escaped = SHOWN.replace("%", "%25")
    assert lines == [
        "::error title=queue-absent::flow Orders, queue orders. select pgmq.create('Orders');",
        f"::error title=slug-invalid::flow {escaped}. {escaped}",
        "::error title=step-slug-case-duplicate::flow orders, step Pack: pack. Mend it.",
        "::warning title=prune-helper-stock::pgflow.prune_data_older_than(interval). Mend it.",
        f"::notice title=null-message-id::flow orders: 21: {'; '.join('abcdefghijklmnopqrst')}; …. Mend it.",
        f"::notice title=pgflow-migrate audit::3 findings stand in the way {POINT}",
    ]


def test_an_upgraded_database_is_not_said_to_have_nothing_in_the_way() -> None:
    upgraded = report(finding("already-upgraded", samples=("queue_identity",)), finding("point-in-time"))
    sentence = (
        "Database shop had queue identity or a later revision already at 2026-01-02 03:04:05 UTC:"
        " this audit has nothing to look for; pgflow-migrate status says what is pending."
    )
    assert printed(upgraded).splitlines()[0] == "info    already-upgraded: this database has queue identity"
    assert printed(upgraded).splitlines()[-1] == sentence
    assert render.document(upgraded)["status"] == "already-upgraded"
    assert render.github(upgraded).splitlines()[-1] == f"::notice title=pgflow-migrate audit::{sentence}"
    assert sentence in render.html(upgraded)


def test_html_counts_one_as_one() -> None:
    assert "PostgreSQL 18.1; 3 errors, 1 warning, 1 note." in render.html(BLOCKED)
    assert "PostgreSQL 18.1; 0 errors, 0 warnings, 2 notes." in render.html(CLEAN)


@pytest.mark.parametrize("width", [80, 120])
def test_on_a_terminal_lines_break_between_words_and_statements_stay_whole(width: int) -> None:
    ids = ", ".join(str(number) for number in range(1, 8))
    fits = f"select pgmq.archive('order intake', array[{ids}]::bigint[]);"
    long = f"select pgmq.archive('orders', array[{', '.join(str(10**9 + n) for n in range(20))}]::bigint[]);"
    hint = (
        "No task has these messages. Nobody but pgflow may send into a flow's queue. Archive them: {} {} {}"
    )
    text = printed(
        report(
            finding("message-without-task", "orders", hint=hint.format(fits, "Or not:", long)),
            finding("slug-invalid", "a" * 200, samples=("x y",)),
        ),
        width=width,
        terminal=True,
    )
    lines = re.sub("\x1b\\[[0-9;]*m", "", text).splitlines()
    assert sum(fits in line for line in lines) == 1
    assert max(len(line) for line in lines if "a" * 200 not in line) <= width
    assert f"flow {'a' * 200}:" in " ".join(" ".join(lines).split())
    words = hint.format(fits, "Or not:", long).split()
    assert " ".join(words) in " ".join(" ".join(lines).split())
