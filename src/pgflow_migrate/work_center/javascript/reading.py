"""``JSON.parse``."""

from __future__ import annotations

import json
import re
from typing import NoReturn, cast

from pgflow_migrate.work_center.javascript.values import Value, keys

_BLANKS = re.compile(r"[ \t\n\r]*")


def parse(text: str) -> Value:
    """``JSON.parse(text)``; the text is from UTF-8, so it has no lone surrogate but escaped ones.

    Of a repeated key the last value counts, at the place of the first. Numbers out of range are infinite.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        return cast(Value, _DECODER.decode(text))
    except RecursionError:
        return parse_deep(text)


def parse_or(value: object, fallback: Value) -> Value:
    """The value of a JSON text; the fallback for what is not a text, is empty or is not JSON."""
    if not isinstance(value, str) or not value:
        return fallback
    try:
        return parse(value)
    except ValueError:
        return fallback


def _object(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    members = dict(pairs)
    if any(map(str.isdecimal, members)):
        return {key: members[key] for key in keys(members)}
    return members


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


# Python's reader takes what V8's takes, and NaN and Infinity besides; and it recurses.
_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=float, parse_constant=_refuse)

# What may come next while a deep text is read: a mark, "s" a string, "v" another scalar, "$" the end.
_VALUE = "[{sv"


class _Container:
    """A container whose end is not read yet; keys is None in an array."""

    __slots__ = ("elements", "keys")

    def __init__(self, keys: list[str] | None) -> None:
        self.keys = keys
        self.elements: list[Value] = []

    def value(self) -> Value:
        return (
            self.elements if self.keys is None else _object(list(zip(self.keys, self.elements, strict=True)))
        )


def parse_deep(text: str) -> Value:
    """The same without recursion, and much slower."""
    # The text as a whole is the only element of an array without brackets.
    containers = [_Container(None)]
    expected = _VALUE
    place = 0
    while True:
        kind, scalar, start, place = _token(text, place)
        if kind not in expected:
            raise ValueError(f"not JSON at character {start}: {text[start : start + 20]!r}")
        inside = containers[-1]
        if kind == "$":
            return inside.elements[0]
        if kind == ":":
            expected = _VALUE
        elif kind == ",":
            expected = _VALUE if inside.keys is None else "s"
        elif kind == "[":
            containers.append(_Container(None))
            expected = _VALUE + "]"
        elif kind == "{":
            containers.append(_Container([]))
            expected = "s}"
        elif kind == "s" and inside.keys is not None and len(inside.keys) == len(inside.elements):
            inside.keys.append(str(scalar))
            expected = ":"
        else:
            value = containers.pop().value() if kind in "]}" else scalar
            containers[-1].elements.append(value)
            expected = "$" if len(containers) == 1 else ",]" if containers[-1].keys is None else ",}"


def _token(text: str, place: int) -> tuple[str, Value, int, int]:
    """Kind, value if it is a scalar, start and end of the next token."""
    blanks = _BLANKS.match(text, place)
    start = blanks.end() if blanks else place
    mark = text[start : start + 1]
    if not mark:
        return "$", None, start, start
    if mark in "[]{},:":
        return mark, None, start, start + 1
    scalar, end = _DECODER.raw_decode(text, start)
    return "s" if mark == '"' else "v", scalar, start, end
