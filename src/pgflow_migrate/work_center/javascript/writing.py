"""``JSON.stringify``, and the program's JSON with sorted keys."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterator
from itertools import repeat
from json.encoder import encode_basestring
from typing import TypeAlias, overload

from pgflow_migrate.work_center.javascript.numbers import number_to_string
from pgflow_migrate.work_center.javascript.text import in_order
from pgflow_migrate.work_center.javascript.values import UNDEFINED, Defined, Undefined, Value, keys

_SURROGATE = re.compile("[\ud800-\udfff]")

# What comes before a value, but for the comma, and the value.
_Members: TypeAlias = Iterator[tuple[str, Value]]


@overload
def stringify(value: Undefined) -> Undefined: ...
@overload
def stringify(value: Defined) -> str: ...
def stringify(value: Value) -> str | Undefined:
    """``JSON.stringify(value)``; what is undefined is null in an array, and left out of an object.

    Raises:
        TypeError: not a JavaScript value.
    """
    return UNDEFINED if value is UNDEFINED else _written(value, _own_order, "null")


@overload
def stable_json(value: Undefined) -> Undefined: ...
@overload
def stable_json(value: Defined) -> str: ...
def stable_json(value: Value) -> str | Undefined:
    """The program's JSON with the keys of every object sorted by UTF-16 code units.

    What is undefined is nothing in an array ("[,1]") and the word undefined in an object: then it is no JSON.

    Raises:
        TypeError: not a JavaScript value.
    """
    return UNDEFINED if value is UNDEFINED else _written(value, _sorted, "")


def _own_order(value: dict[str, Value]) -> _Members:
    return ((_key(key), value[key]) for key in keys(value) if value[key] is not UNDEFINED)


def _sorted(value: dict[str, Value]) -> _Members:
    return ((_key(key), value[key]) for key in in_order(value))


@functools.lru_cache(maxsize=1024)  # most objects have the same keys as others
def _key(key: str) -> str:
    return f"{_quoted(key)}:"


def _written(value: Value, members: Callable[[dict[str, Value]], _Members], hole: str) -> str:
    """The JSON of a value; hole is what stands for undefined in an array."""
    parts: list[str] = []
    outer: list[tuple[_Members, str]] = []
    rest: _Members = iter([("", value)])
    comma, end = "", ""
    while True:
        for key, item in rest:
            if isinstance(item, str):
                parts.append(f"{comma}{key}{_quoted(item)}")
            elif isinstance(item, float):
                parts.append(f"{comma}{key}{_number(item)}")
            elif isinstance(item, (dict, list, bytes)):
                outer.append((rest, end))
                if isinstance(item, list):
                    parts.append(f"{comma}{key}[")
                    rest, end = zip(repeat(""), item), "]"
                else:
                    parts.append(f"{comma}{key}{{")
                    rest, end = members(_object(item)), "}"
                comma = ""
                break
            elif item is UNDEFINED:
                parts.append(f"{comma}{key}{hole if end == ']' else 'undefined'}")
            else:
                parts.append(f"{comma}{key}{_scalar(item)}")
            comma = ","
        else:
            parts.append(end)
            if not outer:
                return "".join(parts)
            rest, end = outer.pop()
            comma = ","


def _object(value: dict[str, Value] | bytes) -> dict[str, Value]:
    """A Uint8Array is written as an object, its indexes the keys."""
    if isinstance(value, bytes):
        return {str(index): float(byte) for index, byte in enumerate(value)}
    return value


def _number(value: float) -> str:
    return number_to_string(value) if math.isfinite(value) else "null"


def _scalar(value: bool | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    raise TypeError(f"not a JavaScript value: {type(value).__name__}")


def _quoted(text: str) -> str:
    quoted = encode_basestring(text)
    if text.isascii():
        return quoted
    try:
        # Several times quicker than a search for surrogates.
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)
    return quoted
