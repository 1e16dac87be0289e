"""The SQL, the committed script, the registry and the page say the same."""

from __future__ import annotations

import re

import pytest

from pgflow_migrate import resources
from pgflow_migrate.audit import refusal, script
from pgflow_migrate.audit.codes import CODES


def folder_text(name: str) -> str:
    return (resources.revision_sql("queue_identity") / name).read_text(encoding="utf-8")


def test_the_committed_script_is_what_is_composed() -> None:
    assert script.committed().read_text(encoding="utf-8") == script.compose(), "run: make audits"


def test_the_script_holds_the_preflight_word_for_word() -> None:
    assert folder_text("preflight_findings.sql") in script.compose()


def test_the_script_is_one_read_only_transaction() -> None:
    statements = script.compose().replace(script.findings_block(), "<block>\n")
    assert statements.count(script.SETTINGS) == 1
    statements = statements.replace(script.SETTINGS, "<settings of the transaction>")
    lines = [line for line in statements.splitlines() if line and not line.startswith("--")]
    assert lines == [
        "begin transaction isolation level repeatable read read only;",
        "<settings of the transaction>",
        "<block>",
        "fetch all from pgflow_migrate_findings;",
        "rollback;",
    ]


def test_sql_and_registry_have_the_same_codes_and_severities() -> None:
    text = folder_text("preflight_findings.sql")
    listed = dict(re.findall(r"^ +\('([a-z-]+)', '(error|warning|info)'\)", text, re.MULTILINE))
    listed["point-in-time"] = "info"
    assert listed == {code.name: code.severity for code in CODES.values()}


def test_every_code_that_the_sql_uses_is_registered() -> None:
    text = folder_text("preflight_findings.sql")
    assigned = set(re.findall(r"'code', '([a-z-]+)'", text)) | set(re.findall(r"'([a-z-]+)' as code\b", text))
    assert len(assigned) > 10
    assert assigned <= set(CODES)


def test_the_page_has_a_section_for_every_code_in_the_registrys_order() -> None:
    page = (resources.root() / "docs" / "findings.md").read_text(encoding="utf-8")
    sections = re.findall(r"^## ([a-z-]+)$", page, re.MULTILINE)
    assert sections == list(CODES)
    linked = re.findall(r"\[([a-z-]+)\]\(#\1\)", page.partition("\n## ")[0])
    assert linked == list(CODES)
    rows = dict(re.findall(r"^\| (error|warning|info) \| (.*) \|$", page, re.MULTILINE))
    for severity, cell in rows.items():
        assert re.findall(r"#([a-z-]+)", cell) == [c.name for c in CODES.values() if c.severity == severity]


def test_the_preflight_raises_with_the_documented_sqlstate() -> None:
    assert f"errcode = '{refusal.SQLSTATE}'" in folder_text("preflight_raise.sql")
    page = (resources.root() / "docs" / "findings.md").read_text(encoding="utf-8")
    assert f"SQLSTATE `{refusal.SQLSTATE}`" in page


def test_more_md5_sums_become_part_of_the_block() -> None:
    md5 = "0123456789abcdef0123456789abcdef"
    assert script.findings_block([md5]).count(f"'{md5}'") == 1
    assert script.findings_block([md5]).replace(f"    '{md5}',\n", "") == script.findings_block()


@pytest.mark.parametrize(
    "text", ["", "'", "0123456789ABCDEF0123456789ABCDEF", "0123456789abcdef0123456789abcdef\n"]
)
def test_what_is_no_md5_sum_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an md5 sum"):
        script.findings_block([text])
