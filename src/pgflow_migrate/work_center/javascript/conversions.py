"""``String(value)`` and ``Number(value)``."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pgflow_migrate.work_center.javascript.numbers import number_to_string, string_to_number
from pgflow_migrate.work_center.javascript.values import UNDEFINED, JavaScriptTypeError, Value


def to_string(value: Value) -> str:
    """``String(value)``, which ``${value}`` is, too.

    Raises:
        JavaScriptTypeError: an object, at any depth of an array, that has a member toString: one read from
            JSON cannot be called.
        TypeError: not a JavaScript value.
    """
    return _joined(value) if isinstance(value, list) else _string(value)


def to_number(value: Value) -> float:
    """``Number(value)``: NaN for undefined and for what is no number.

    Raises:
        JavaScriptTypeError: as `to_string`, for an object or an array.
        TypeError: not a JavaScript value.
    """
    if isinstance(value, float):
        return value
    if isinstance(value, str):
        return string_to_number(value)
    if value is None or isinstance(value, bool):
        return 1.0 if value else 0.0
    if value is UNDEFINED:
        return math.nan
    return string_to_number(to_string(value))


def _joined(array: list[Value]) -> str:
    """The elements with commas between them; null and undefined are nothing, arrays in it likewise."""
    parts: list[str] = []
    outer: list[Iterator[Value]] = []
    rest, comma = iter(array), ""
    while True:
        for element in rest:
            parts.append(comma)
            comma = ","
            if isinstance(element, list):
                outer.append(rest)
                rest, comma = iter(element), ""
                break
            if element is not None and element is not UNDEFINED:
                parts.append(_string(element))
        else:
            if not outer:
                return "".join(parts)
            rest, comma = outer.pop(), ","


def _string(value: Value) -> str:
    """Of what is not an array."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return number_to_string(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is UNDEFINED:
        return "undefined"
    if isinstance(value, bytes):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        if "toString" in value:
            raise JavaScriptTypeError("Cannot convert object to primitive value")
        return "[object Object]"
    raise TypeError(f"not a JavaScript value: {type(value).__name__}")
