"""Python answers as Node.js did; record.mjs, which made recorded.json, says what was asked."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from tests.work_center.javascript.questions import ANSWERS, HERE, answer, answer_of, read, same_digits

from pgflow_migrate.work_center.javascript.reading import parse_deep

RECORDED: list[tuple[str, Any, Any]] = json.loads((HERE / "recorded.json").read_text(encoding="ascii"))
QUESTIONS = Counter(question for question, _, _ in RECORDED)


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_recorded_answer_is_given(question: str) -> None:
    cases = [(argument, expected) for asked, argument, expected in RECORDED if asked == question]
    different = [
        (argument, expected, given)
        for argument, expected in cases
        if repr(given := answer(question, read(argument))) != repr(same_digits(expected))
    ]
    assert different == []


def test_the_reader_of_deep_texts_reads_every_recorded_text_alike() -> None:
    texts = [text for question, text, _ in RECORDED if question == "parse"]
    assert {text: repr(answer_of(parse_deep, text)) for text in texts} == {
        text: repr(answer("parse", text)) for text in texts
    }


def test_the_digits_of_recorded_numbers_are_those_of_node() -> None:
    """Apart from what a number is, its text: no detour through Python's own digits."""
    numbers = {
        argument["number"]: expected
        for question, argument, expected in RECORDED
        if question == "to_string" and isinstance(argument, dict) and "number" in argument
    }
    assert len(numbers) > 60
    assert {digits: answer("to_string", read({"number": digits})) for digits in numbers} == numbers


def test_the_table_asks_every_question_often() -> None:
    assert QUESTIONS.keys() == ANSWERS.keys()
    assert min(QUESTIONS.values()) >= 20
