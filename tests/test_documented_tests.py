"""The tests that the guides name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NAMED = re.compile(r"`([a-z0-9_/]+\.py)::(\w+|\*)`")
REFERENCES = sorted(
    {
        (document.name, file, test)
        for document in (ROOT / "docs").glob("*.md")
        for file, test in NAMED.findall(document.read_text(encoding="utf-8"))
    }
)


def test_the_guides_name_tests() -> None:
    assert len(REFERENCES) > 30


@pytest.mark.parametrize(("document", "file", "test"), REFERENCES)
def test_a_test_that_a_guide_names_exists(document: str, file: str, test: str) -> None:
    text = (ROOT / "tests" / file).read_text(encoding="utf-8")
    wanted = r"^def test_\w+\(" if test == "*" else rf"^def {test}\("
    assert re.search(wanted, text, re.MULTILINE), f"{document} names {file}::{test}"
