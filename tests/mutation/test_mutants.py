"""The mutants are those that the operators say, each a change of one place."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.mutation import sql
from tests.mutation.explained import EXPLAINED
from tests.mutation.targets import TARGETS

ROOT = Path(__file__).resolve().parents[2]


def changed(text: str) -> set[str]:
    return {new for _, new in sql.changed(text)}


@pytest.mark.parametrize(
    ("text", "mutants"),
    [
        ("select a = 1", {"select a <> 1", "select a = 2", "select a = 0"}),
        ("select a <= b", {"select a < b", "select a > b"}),
        ("select a is not null", {"select a is null"}),
        ("select a is null", {"select a is not null"}),
        ("where not exists (x)", {"where exists (x)"}),
        ("where exists (x)", {"where not exists (x)"}),
        ("where not a", {"where  a"}),
        (
            "select min(a) union all select a",
            {"select max(a) union all select a", "select min(a) union select a"},
        ),
        ("select a for update skip locked", {"select a "}),
        ("select a for share", {"select a "}),
        ("select true and b", {"select false and b", "select true or b"}),
        ("select '= and 1' -- = and 1", set()),
        (
            "do $x$ select $y$a < b$y$ $x$",
            {"do $x$ select $y$a <= b$y$ $x$", "do $x$ select $y$a >= b$y$ $x$"},
        ),
    ],
)
def test_sql_is_changed_in_one_place_and_strings_and_comments_are_not(text: str, mutants: set[str]) -> None:
    assert changed(text) == mutants


def test_a_clause_of_its_own_line_goes() -> None:
    kept = "select\nwhere a\n  and f(b)\n  and (c\n"
    assert "select\nwhere a\n          \n  and (c\n" in changed(kept)
    assert all("(c" in new for new in changed(kept))


def test_every_file_of_every_target_is_there() -> None:
    named = {path for target in TARGETS.values() for path in (*target.files, *target.tests)}
    assert [path for path in sorted(named) if not (ROOT / path).is_file()] == []


def test_every_survivor_that_is_explained_is_still_of_a_line_of_its_file() -> None:
    gone = [
        one
        for one in EXPLAINED
        if one[1] not in (line.strip() for line in (ROOT / one[0]).read_text(encoding="utf-8").split("\n"))
    ]
    assert gone == []
