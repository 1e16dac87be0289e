"""What holds of JavaScript's JSON and texts whatever the value, and at any depth."""

from __future__ import annotations

import math
import random
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.work_center.javascript.questions import OF_A_VALUE, answer
from tests.work_center.javascript.values import ANY, FROM_JSON, NUMBERS, TEXTS, json_texts

from pgflow_migrate.work_center.javascript import (
    UNDEFINED,
    JavaScriptTypeError,
    Value,
    get,
    number_to_string,
    parse,
    parse_or,
    sha256,
    stable_json,
    stringify,
    to_number,
    to_string,
    utf8,
)
from pgflow_migrate.work_center.javascript.reading import parse_deep

_SETTINGS = settings(max_examples=80, derandomize=True, deadline=None, database=None)

# Beyond V8's stack, and far beyond Python's.
DEPTH = 20 * sys.getrecursionlimit()


def shuffled(value: Value, seed: int) -> Value:
    """The value with the members of each object in another order."""
    if isinstance(value, list):
        return [shuffled(element, seed) for element in value]
    if isinstance(value, dict):
        names = list(value)
        random.Random(seed).shuffle(names)  # noqa: S311
        return {name: shuffled(value[name], seed) for name in names}
    return value


@_SETTINGS
@given(value=FROM_JSON)
def test_what_is_written_reads_back_and_is_written_the_same(value: Value) -> None:
    for write in (stringify, stable_json):
        text = write(value)
        assert isinstance(text, str)
        assert write(parse(text)) == text


@_SETTINGS
@given(value=ANY, seed=st.integers())
def test_the_order_of_members_does_not_matter_to_sorted_json(value: Value, seed: int) -> None:
    assert stable_json(shuffled(value, seed)) == stable_json(value)


@_SETTINGS
@given(value=FROM_JSON)
def test_sorted_json_is_json_of_the_same_value(value: Value) -> None:
    sorted_text, text = stable_json(value), stringify(value)
    assert isinstance(sorted_text, str)
    assert isinstance(text, str)
    assert parse(sorted_text) == parse(text)
    assert sorted(sorted_text) == sorted(text)


@_SETTINGS
@given(text=json_texts())
def test_the_reader_of_deep_texts_reads_all_texts_alike(text: str) -> None:
    try:
        expected = repr(parse(text))
    except ValueError:
        with pytest.raises(ValueError):
            parse_deep(text)
    else:
        assert repr(parse_deep(text)) == expected


@_SETTINGS
@given(number=NUMBERS)
def test_the_digits_of_a_number_read_back_as_the_number(number: float) -> None:
    text = number_to_string(number)
    assert repr(to_number(text)) == repr(number + 0.0)
    if math.isfinite(number):
        assert repr(parse(text)) == repr(number + 0.0)


@_SETTINGS
@given(text=TEXTS)
def test_utf_8_is_always_valid_and_unchanged_where_there_is_no_lone_surrogate(text: str) -> None:
    lone = sum("\ud800" <= character <= "\udfff" for character in text)
    decoded = utf8(text).decode()
    assert len(decoded) == len(text)
    assert sum(given != kept for given, kept in zip(text, decoded, strict=True)) == lone
    assert decoded.count("\ufffd") == lone + text.count("\ufffd")


def test_json_of_any_depth_is_read_and_written() -> None:
    arrays = "[" * DEPTH + '"x"' + "]" * DEPTH
    objects = '{"b":1,"a":' * DEPTH + "[]" + "}" * DEPTH
    assert stringify(parse(arrays)) == stable_json(parse(arrays)) == arrays
    assert to_string(parse(arrays)) == "x"
    assert stringify(parse(objects)) == objects
    assert stable_json(parse(objects)) == '{"a":' * DEPTH + "[]" + ',"b":1}' * DEPTH
    assert math.isnan(to_number(parse(objects)))


@pytest.mark.parametrize(
    "broken", ["[" * DEPTH, "[" * DEPTH + "]" * (DEPTH + 1), '{"a":' * DEPTH + "}" * DEPTH]
)
def test_what_is_broken_is_refused_at_any_depth(broken: str) -> None:
    with pytest.raises(ValueError):
        parse(broken)
    assert parse_or(broken, "fallback") == "fallback"


@pytest.mark.parametrize("value", [None, UNDEFINED, 5, 5.0, b"[]", "", "{", "NaN", "\ufeff[]", [], "'a'"])
def test_what_is_no_json_text_falls_back(value: object) -> None:
    fallback: list[Value] = []
    assert parse_or(value, fallback) is fallback


def test_json_falls_back_for_no_value_that_it_holds() -> None:
    assert [parse_or(text, "fallback") for text in ("null", "false", "0", '""', "[]")] == [
        None,
        False,
        0.0,
        "",
        [],
    ]


@pytest.mark.parametrize(("value", "name"), [(None, "null"), (UNDEFINED, "undefined")])
def test_null_has_no_members_to_read(value: Value, name: str) -> None:
    with pytest.raises(JavaScriptTypeError, match=rf"^Cannot read properties of {name} \(reading 'text'\)$"):
        get(value, "text")


def test_an_object_with_a_member_to_string_is_no_text() -> None:
    for value in (parse('{"toString":1}'), parse('[[{"toString":1}]]')):
        for convert in (to_string, to_number):
            with pytest.raises(JavaScriptTypeError, match=r"^Cannot convert object to primitive value$"):
                convert(value)


@pytest.mark.parametrize("foreign", [5, 2**60, ("a",), bytearray(b"a"), {"a"}, object()])
def test_what_javascript_has_not_is_refused(foreign: Any) -> None:
    for convert in (stringify, stable_json, to_string, to_number):
        for value in (foreign, [foreign]):
            with pytest.raises(
                TypeError, match=rf"^not a JavaScript value: {type(foreign).__name__}$"
            ) as caught:
                convert(value)
            assert not isinstance(caught.value, JavaScriptTypeError)


@_SETTINGS
@given(value=ANY)
def test_no_question_changes_the_value(value: Value) -> None:
    before = repr(value)
    for question in OF_A_VALUE:
        answer(question, value)
    assert repr(value) == before


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (
            "work-center-migration:23-conversation-stream:v1",
            "058a124c1b06c0907ec79862462ded7187ea75b13104279bd643ddcc1e7400ae",
        ),
        ("\ufffd", "83d544ccc223c057d2bf80d3f2a32982c32c3c0db8e2674820da5064783fb097"),
    ],
)
def test_hashes_are_those_of_sha256sum(text: str, expected: str) -> None:
    assert sha256(text) == expected


def test_a_lone_surrogate_is_hashed_as_the_replacement_character() -> None:
    assert sha256("a\udfff\ud800b") == sha256("a\ufffd\ufffdb")
