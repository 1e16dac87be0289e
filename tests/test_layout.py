"""Plurals, and lines that leave words and SQL whole."""

from __future__ import annotations

import unicodedata

import pytest

from pgflow_migrate.layout import lines, plural, printable


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


def test_what_drives_a_terminal_or_does_not_show_is_written_out() -> None:
    assert printable("a\x1b[31mb\r\nc\td\x9b") == "a\\x1b[31mb\\r\\nc\\td\\x9b"
    assert printable("\u202eabc\u200b\ufeff\ud800\U000e0041") == "\\u202eabc\\u200b\\ufeff\\ud800\\U000e0041"
    shown = "orders, \u00e9t\u00e9 \u2202 \U0001f600 \u2026 \u00a0 \\n"
    assert printable(shown) == shown
    assert printable(printable("\x1b")) == "\\x1b"


@pytest.mark.parametrize("category", ["Cc", "Cs", "Zl", "Zp"])
def test_no_control_is_left(category: str) -> None:
    every = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) == category]
    assert every
    assert all(printable(char).isascii() and printable(char).isprintable() for char in every)


def test_a_line_cannot_be_forged() -> None:
    assert lines("broken\nnext  Nothing to do.\x1b]0;title\x07", 80) == [
        "broken\\nnext  Nothing to do.\\x1b]0;title\\x07"
    ]
