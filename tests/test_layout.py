"""Plurals, and lines that leave words and SQL whole."""

from __future__ import annotations

import pytest

from pgflow_migrate.layout import lines, plural


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 flows"), (1, "1 flow"), (2, "2 flows"), (12345, "12,345 flows")]
)
def test_only_one_is_singular(number: int, said: str) -> None:
    assert plural(number, "flow") == said


def test_a_plural_of_its_own_is_taken() -> None:
    assert plural(1, "finding stands", "findings stand") == "1 finding stands"
    assert plural(2, "finding stands", "findings stand") == "2 findings stand"


def test_without_a_width_the_text_is_one_line() -> None:
    assert lines("a " * 100, None, "  ") == ["  " + "a " * 100]


def test_lines_break_between_words_behind_the_indent() -> None:
    assert lines("one two three four", 10, "  ") == ["  one two", "  three", "  four"]


def test_a_word_longer_than_the_line_is_left_whole() -> None:
    assert lines("to abcdefghijkl it", 10) == ["to", "abcdefghijkl", "it"]


def test_a_statement_that_fits_on_a_line_of_its_own_gets_one() -> None:
    assert lines("Delete it: delete from t where a = 'x; y'; then go.", 33) == [
        "Delete it:",
        "delete from t where a = 'x; y';",
        "then go.",
    ]


def test_a_longer_statement_breaks_outside_its_quotes() -> None:
    assert lines("""Run: select f('a long, long name', "My column", 1);""", 22) == [
        "Run: select",
        "f('a long, long name',",
        '"My column", 1);',
    ]


def test_prose_with_a_verb_of_sql_is_prose() -> None:
    assert lines("Rename it, or delete the flow; select another.", 20) == [
        "Rename it, or delete",
        "the flow; select",
        "another.",
    ]


def test_wide_characters_count_twice() -> None:
    assert lines("\u8a9e\u8a9e \u8a9e\u8a9e", 8) == ["\u8a9e\u8a9e", "\u8a9e\u8a9e"]


def test_nothing_is_an_empty_line() -> None:
    assert lines("", 10, "  ") == [""]
