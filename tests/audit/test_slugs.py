"""The rules for slugs, at their edges, and with names that were made to break things."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgflow_migrate import resources
from pgflow_migrate.audit import Finding, findings_from_error, script
from pgflow_migrate.audit.run import run_audit
from pgflow_migrate.replay import signature

Database = psycopg.Connection[dict[str, Any]]
Audited = Callable[[Database], list[tuple[Any, ...]]]

HOSTILE = (
    "'; drop table pgflow.runs; --",
    '"; drop schema pgflow cascade; --',
    "$findings$; $query$; $$",
    "%s %I %L %1$s %% {0} {} :name %(name)s",
    "back\\slash \\' \\n",
    "two\nlines\r\nand\ttabs",
    "\x01\x1b[31mred\x1b[0m\x7f",
    "<script>alert(1)</script> & ]]> \u202e\u2028",
    "[red]markup[/red]",
    "été ∂ 😀",
    " ",
    ".",
    "a-b",
    "{a,b}",
    "NULL'",
)


@pytest.fixture
def unchecked(database: Database) -> Database:
    """A database whose slugs nobody checks."""
    database.execute("alter table pgflow.flows drop constraint slug_is_valid")
    database.execute("alter table pgflow.steps drop constraint steps_step_slug_check")
    return database


def flow(database: Database, slug: str) -> None:
    database.execute("insert into pgflow.flows (flow_slug) values (%s)", [slug])


def codes(findings: tuple[Finding, ...], slug: str) -> list[str]:
    return [finding.code for finding in findings if finding.flow_slug == slug]


@pytest.mark.parametrize(
    ("slug", "expected"),
    [
        ("_", ["queue-absent", "slug-leading-underscore", "slug-trailing-underscore"]),
        (
            "__",
            ["queue-absent", "slug-double-underscore", "slug-leading-underscore", "slug-trailing-underscore"],
        ),
        (
            "_a__b_",
            ["queue-absent", "slug-double-underscore", "slug-leading-underscore", "slug-trailing-underscore"],
        ),
        ("a___b", ["queue-absent", "slug-double-underscore"]),
        ("_run", ["queue-absent", "slug-leading-underscore"]),
        ("_9 lives", ["slug-leading-underscore"]),
        ("9 lives_", ["slug-trailing-underscore"]),
        ("9__lives", ["slug-double-underscore"]),
        ("", ["slug-invalid"]),
        ("run", ["slug-invalid"]),
        ("9a", ["slug-invalid"]),
        ("a b", ["slug-invalid"]),
        ("a\n", ["slug-invalid"]),
        ("été", ["slug-invalid"]),
        ("x" * 129, ["slug-invalid"]),
        ("x" * 128, ["queue-name-invalid"]),
        ("x" * 48, ["queue-name-invalid"]),
        ("x_" * 24, ["queue-name-invalid", "slug-trailing-underscore"]),
        ("x" * 47, ["queue-absent"]),
        ("Run", ["queue-absent"]),
        ("runs", ["queue-absent"]),
        ("a", ["queue-absent"]),
        ("camelCase_2_b", ["queue-absent"]),
    ],
)
def test_every_reason_is_given_and_valid_slugs_have_none(
    slug: str, expected: list[str], unchecked: Database
) -> None:
    """That the queue is absent shows that it was looked for: the slug has passed."""
    flow(unchecked, slug)
    assert codes(run_audit(unchecked).blocking, slug) == expected


def test_step_slugs_follow_the_same_rules_but_need_no_queue(unchecked: Database) -> None:
    unchecked.execute("select pgflow.create_flow('orders')")
    slugs = ("a__b", "_a", "a_", "run", "", "x" * 128, "x" * 129, "fine", "camelCase")
    for number, slug in enumerate(slugs):
        unchecked.execute(
            "insert into pgflow.steps (flow_slug, step_slug, step_index) values ('orders', %s, %s)",
            [slug, number],
        )
    found = [(finding.code, finding.step_slug) for finding in run_audit(unchecked).blocking]
    assert found == [
        ("slug-double-underscore", "a__b"),
        ("slug-invalid", ""),
        ("slug-invalid", "run"),
        ("slug-invalid", "x" * 129),
        ("slug-leading-underscore", "_a"),
        ("slug-trailing-underscore", "a_"),
    ]


def test_hints_say_what_is_to_be_renamed(unchecked: Database) -> None:
    for slug in ("_a", "9", "Flow", "fLOW", "x" * 48, "x" * 128):
        flow(unchecked, slug)
    for number, step in enumerate(("_b", "8", "Step", "sTEP")):
        unchecked.execute(
            "insert into pgflow.steps (flow_slug, step_slug, step_index) values ('_a', %s, %s)",
            [step, number],
        )
    beginnings = {
        (finding.code, finding.flow_slug, finding.step_slug): finding.hint.split(" database")[0]
        for finding in run_audit(unchecked).blocking
        if finding.code.startswith(("slug-", "queue-name-")) or finding.code.endswith("-duplicate")
    }
    ended = "Once its runs have ended, rename the flow in code and"
    ended_of_step = "Once the flow's runs have ended, rename the step in code and"
    form = 'is not made of 1 to 128 letters, digits and "_" with no digit first, or is the word "run"'
    case = "The slug differs only in case from the samples"
    long = "A queue name has at most 47 characters, this one would have"
    expected: dict[tuple[str, str, str | None], str] = {
        ("slug-leading-underscore", "_a", None): f'The slug begins with "_". {ended}',
        ("slug-invalid", "9", None): f"The slug {form}. {ended}",
        ("slug-leading-underscore", "_a", "_b"): f'The slug begins with "_". {ended_of_step}',
        ("slug-invalid", "_a", "8"): f"The slug {form}. {ended_of_step}",
        **{
            ("flow-slug-case-duplicate", slug, None): f"{case}, so that they share one queue. Rename all "
            "but one in code and"
            for slug in ("Flow", "fLOW")
        },
        **{
            ("step-slug-case-duplicate", "_a", slug): f"{case}. Once the flow's runs have ended, rename all "
            "but one in code and"
            for slug in ("Step", "sTEP")
        },
        **{
            ("queue-name-invalid", "x" * length, None): f"{long} {length}. Rename the flow in code and"
            for length in (48, 128)
        },
    }
    assert beginnings == expected


def test_case_duplicates_are_per_flow_for_steps(database: Database, audited: Audited) -> None:
    database.execute("select pgflow.create_flow('orders'); select pgflow.create_flow('billing')")
    database.execute("select pgflow.add_step('orders', 'pack'); select pgflow.add_step('billing', 'PACK')")
    assert audited(database) == []


def test_case_duplicates_name_every_member_and_twenty_partners(database: Database, audited: Audited) -> None:
    """Five letters in either case: 32 spellings of one slug."""
    database.execute("select pgflow.create_flow('orders')")
    spellings = sorted(
        "".join(letter.upper() if number >> place & 1 else letter for place, letter in enumerate("abcde"))
        for number in range(32)
    )
    for spelling in spellings:
        database.execute("select pgflow.add_step('orders', %s)", [spelling])
    expected = [
        (
            "error",
            "step-slug-case-duplicate",
            "orders",
            spelling,
            None,
            31,
            tuple(other for other in spellings if other != spelling)[:20],
        )
        for spelling in spellings
    ]
    assert audited(database) == expected


def test_hostile_names_come_back_exactly_and_change_nothing(unchecked: Database) -> None:
    for slug in HOSTILE:
        flow(unchecked, slug)
        unchecked.execute("insert into pgflow.steps (flow_slug, step_slug) values (%s, %s)", [slug, slug])
        unchecked.execute("insert into pgflow.runs (flow_slug, input) values (%s, '{}')", [slug])
        unchecked.execute(
            "insert into pgflow.step_states (flow_slug, step_slug, run_id) "
            "select flow_slug, flow_slug, run_id from pgflow.runs where flow_slug = %s",
            [slug],
        )
        unchecked.execute(
            "insert into pgflow.step_tasks (flow_slug, step_slug, run_id) "
            "select flow_slug, flow_slug, run_id from pgflow.runs where flow_slug = %s",
            [slug],
        )
    before = signature.take(unchecked)
    report = run_audit(unchecked)
    assert signature.take(unchecked) == before
    flows = sorted(finding.flow_slug or "" for finding in report.blocking if finding.step_slug is None)
    steps = sorted(finding.step_slug or "" for finding in report.blocking if finding.step_slug is not None)
    assert flows == steps == sorted(HOSTILE)
    assert {finding.code for finding in report.blocking} == {"slug-invalid"}
    nulls = {f.flow_slug: f.samples[0] for f in report.findings if f.code == "null-message-id"}
    assert {slug: sample.split("/", 1)[1] for slug, sample in nulls.items()} == {
        slug: f"{slug}/0" for slug in HOSTILE
    }


def test_hostile_names_survive_the_refusal(unchecked: Database) -> None:
    for slug in HOSTILE:
        flow(unchecked, slug)
    expected = run_audit(unchecked).blocking
    raising = (resources.revision_sql("queue_identity") / "preflight_raise.sql").read_bytes()
    with unchecked.transaction():
        unchecked.execute(script.findings_block().encode())
        with pytest.raises(psycopg.Error) as refused, unchecked.transaction():
            unchecked.execute(raising)
    assert findings_from_error(refused.value) == expected


def test_names_that_only_quoting_keeps_apart_have_queues_that_are_found(
    database: Database, audited: Audited
) -> None:
    """Reserved words and mixed case are valid slugs."""
    for slug in ("select", "User", "table", "q_a", "a_q", "meta"):
        database.execute("select pgflow.create_flow(%s)", [slug])
        database.execute("select pgflow.add_step(%s, 'order')", [slug])
        database.execute("select pgflow.start_flow(%s, '{}')", [slug])
    assert audited(database) == []
    assert run_audit(database).findings[-1].samples[-1] == "6 messages in 6 queues"
