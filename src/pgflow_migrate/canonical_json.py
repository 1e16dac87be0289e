"""One text for all JSON values that PostgreSQL's jsonb calls equal, as ``pgflow._canonical_json`` gives it.

Keys are sorted by the number of their bytes, then by bytes (UTF-8); of equal keys the last wins; separators
are ", " and ": "; numbers have no exponent and no trailing zeros after the point, and zero no sign. Nothing
here recurses: depth is bounded by memory alone, on the server by max_stack_depth.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

__all__ = ["Canonical", "of_json", "of_value"]

# Digits of PostgreSQL's numeric before and after the point.
_MAX_WHOLE_DIGITS = 131_072
_MAX_SCALE = 16_383
# The server refuses larger exponents without a look at the digits.
_MAX_EXPONENT = 2**30 - 1

_NUMBER = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE]([+-]?[0-9]+))?")
_TOKEN = re.compile(
    r"""[ \t\n\r]*(?:
      (?P<mark>[][{},:])
      | "(?P<string>[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*)"
      | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)
      | (?P<word>true|false|null)
      | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_ESCAPED = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\(.)"
)
_TO_ESCAPE = re.compile(r'[\x00-\x1f"\\\ud800-\udfff]')
_SHORT_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SHORT_ESCAPED = {character: "\\" + letter for letter, character in _SHORT_ESCAPES.items()} | {
    '"': '\\"',
    "\\": "\\\\",
}
_WORDS = {"true": True, "false": False, "null": None}

# What may come next while a text is read; "s" is a string, "n" a number, "w" a word, "$" the end.
_VALUE = "[{snw"


@dataclass(frozen=True)
class Canonical:
    """A canonical JSON text.

    Attributes:
        text: the text.
    """

    text: str

    @property
    def size(self) -> int:
        """Bytes in UTF-8, as the limits of the protocol count."""
        return len(self.text.encode())

    @property
    def sha256(self) -> bytes:
        """SHA-256 of the UTF-8 bytes: what tells a replay from another result."""
        return hashlib.sha256(self.text.encode()).digest()


def of_value(value: object) -> Canonical:
    """The canonical text of None, bool, int, float, Decimal, str, and of lists, tuples and dicts of these.

    Args:
        value: what a handler returned, for instance.

    Raises:
        TypeError: a value, or a key, of another type.
        ValueError: jsonb cannot hold it: NUL or a surrogate in a string, NaN or an infinity, a number outside
            the range of numeric, a container inside itself.
    """
    return Canonical(_written(value))


def of_json(text: str) -> Canonical:
    """The canonical text of a JSON text. Numbers are taken as they are spelled, never as floats.

    Args:
        text: a JSON text in any spelling.

    Raises:
        ValueError: it is not JSON, or jsonb cannot hold it.
    """
    return Canonical(_written(_read(text)))


class _Ready(str):
    """Text that is canonical already."""

    __slots__ = ()


@dataclass(frozen=True)
class _Closing:
    """The end of a container that is being written."""

    mark: str
    container: int


# -- writing -----------------------------------------------------------------------------------------------


def _written(value: object) -> str:
    parts: list[str] = []
    todo: list[object] = [value]
    inside: set[int] = set()
    while todo:
        item = todo.pop()
        if isinstance(item, _Ready):
            parts.append(item)
        elif isinstance(item, _Closing):
            inside.discard(item.container)
            parts.append(item.mark)
        elif isinstance(item, (dict, list, tuple)):
            if id(item) in inside:
                raise ValueError("JSON cannot hold a container that is inside itself")
            inside.add(id(item))
            parts.append("{" if isinstance(item, dict) else "[")
            todo.append(_Closing("}" if isinstance(item, dict) else "]", id(item)))
            todo.extend(reversed(list(_members(item))))
        else:
            parts.append(_scalar(item))
    return "".join(parts)


def _members(container: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> Iterator[object]:
    if not isinstance(container, dict):
        for number, element in enumerate(container):
            if number:
                yield _Ready(", ")
            yield element
        return
    for key in container:
        if not isinstance(key, str):
            raise TypeError(f"a JSON key is a string, not {type(key).__name__}: {key!r}")
    strings = {key: _string(key) for key in container}
    for number, key in enumerate(sorted(container, key=_key_order)):
        yield _Ready(f"{', ' if number else ''}{strings[key]}: ")
        yield container[key]


def _key_order(key: str) -> tuple[int, bytes]:
    encoded = key.encode()
    return len(encoded), encoded


def _scalar(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, float):
        return _number(float.__repr__(value))
    if isinstance(value, Decimal):
        return _number(str(value))
    raise TypeError(f"JSON has no {type(value).__name__}")


def _string(value: str) -> str:
    return f'"{_TO_ESCAPE.sub(_escape, value)}"'


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    if character == "\0":
        raise ValueError("jsonb cannot hold the character U+0000")
    if "\ud800" <= character <= "\udfff":
        raise ValueError(f"jsonb cannot hold a lone surrogate: U+{ord(character):04X}")
    return _SHORT_ESCAPED.get(character) or f"\\u{ord(character):04x}"


def _integer(value: int) -> str:
    # int() and str() of long numbers are limited, and slow; 3 < log2(10) < 4.
    if value.bit_length() > 4 * _MAX_WHOLE_DIGITS:
        raise ValueError(
            f"jsonb cannot hold a number with more than {_MAX_WHOLE_DIGITS} digits before the point"
        )
    return _number(format(Decimal(value), "f"))


def _number(spelled: str) -> str:
    """A number as numeric prints it, without the zeros at the end.

    Raises:
        ValueError: it is not finite, or numeric cannot hold it.
    """
    found = _NUMBER.fullmatch(spelled)
    if found is None:
        raise ValueError(f"jsonb cannot hold the number {spelled[:20]}")
    sign, whole, fraction = found[1], found[2], found[3] or ""
    exponent = _exponent(found[4] or "0")
    # numeric keeps the zeros that are spelled after the point, and counts them.
    if len(fraction) - exponent > _MAX_SCALE:
        raise ValueError(f"jsonb cannot hold a number with more than {_MAX_SCALE} digits after the point")

    digits = (whole + fraction).lstrip("0")
    point = len(digits) - len(fraction) + exponent
    digits = digits.rstrip("0")
    if not digits:
        return "0"
    if point > _MAX_WHOLE_DIGITS:
        raise ValueError(
            f"jsonb cannot hold a number with more than {_MAX_WHOLE_DIGITS} digits before the point"
        )
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return f"{sign}{digits}{'0' * (point - len(digits))}"
    return f"{sign}{digits[:point]}.{digits[point:]}"


def _exponent(spelled: str) -> int:
    digits = spelled.lstrip("+-0") or "0"
    # Python reads no integers of thousands of digits.
    if len(digits) > 10 or int(digits) > _MAX_EXPONENT:
        raise ValueError(f"jsonb cannot hold a number with the exponent {spelled[:20]}")
    return -int(digits) if spelled.startswith("-") else int(digits)


# -- reading -----------------------------------------------------------------------------------------------


def _read(text: str) -> object:
    result: object = None
    containers: list[dict[str, object] | list[object]] = []
    keys: list[str] = []
    key_is_next = False
    expected = _VALUE
    for kind, thing, place in _tokens(text):
        if kind not in expected:
            raise _not_json(text, place)
        if kind == "$":
            break
        if kind == "s" and key_is_next:
            keys.append(str(thing))
            key_is_next, expected = False, ":"
            continue
        if kind == ":":
            expected = _VALUE
            continue
        if kind == ",":
            key_is_next = isinstance(containers[-1], dict)
            expected = "s" if key_is_next else _VALUE
            continue

        if kind in "]}":
            containers.pop()
        else:
            if not containers:
                result = thing
            elif isinstance(around := containers[-1], dict):
                around[keys.pop()] = thing
            else:
                around.append(thing)
            if isinstance(thing, dict):
                containers.append(thing)
                key_is_next, expected = True, "s}"
                continue
            if isinstance(thing, list):
                containers.append(thing)
                expected = _VALUE + "]"
                continue
        expected = "$" if not containers else ",}" if isinstance(containers[-1], dict) else ",]"
    return result


def _tokens(text: str) -> Iterator[tuple[str, object, int]]:
    """Kind, value and place of each token; ends with "$"."""
    place = 0
    while True:
        found = _TOKEN.match(text, place)
        if found is None:
            raise _not_json(text, place)
        kind = found.lastgroup or "end"
        start = found.start(kind)
        place = found.end()
        if kind == "mark":
            thing: object = {"{": {}, "[": []}.get(found[kind])
            yield found[kind], thing, start
        elif kind == "string":
            yield "s", _unescaped(found[kind]), start
        elif kind == "number":
            yield "n", _Ready(_number(found[kind])), start
        elif kind == "word":
            yield "w", _WORDS[found[kind]], start
        else:
            yield "$", None, start
            return


def _unescaped(string: str) -> str:
    if "\\" in string:
        string = _ESCAPED.sub(_unescape, string)
    # Also where a later key of the same name takes its place.
    _string(string)
    return string


def _unescape(found: re.Match[str]) -> str:
    high, low, single, letter = found.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if single:
        return chr(int(single, 16))
    return _SHORT_ESCAPES.get(letter, letter)


def _not_json(text: str, place: int) -> ValueError:
    return ValueError(f"not JSON at character {place}: {text[place : place + 20]!r}")
