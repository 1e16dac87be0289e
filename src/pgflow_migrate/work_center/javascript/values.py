"""What a JavaScript value is in Python, and the questions asked of one."""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias


class Undefined(Enum):
    """The type of `UNDEFINED`."""

    UNDEFINED = "undefined"

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "UNDEFINED"


UNDEFINED: Final = Undefined.UNDEFINED

# What JSON can hold, and bytes, which JSON.stringify takes for an object.
Defined: TypeAlias = "bool | float | str | bytes | list[Value] | dict[str, Value] | None"
Value: TypeAlias = "Defined | Undefined"


class JavaScriptTypeError(TypeError):
    """JavaScript throws a TypeError here, so the program's step fails. The message is V8's."""


def truthy(value: Value) -> bool:
    """Whether JavaScript takes the value for true, as in ``if (value)``, ``!value`` and ``value || other``.

    False, null, undefined, zeros, NaN and the empty text are not; every object is, an empty one too.
    """
    if value is None or value is UNDEFINED:
        return False
    if not value:
        return isinstance(value, (list, dict, bytes))
    # NaN is the only value that is not equal to itself.
    return not isinstance(value, float) or value == value


def is_object(value: Value) -> bool:
    """``typeof value === 'object' && value !== null``: arrays and bytes are objects, too."""
    return isinstance(value, (dict, list, bytes))


def get(value: Value, key: str) -> Value:
    """``value.key`` for a key that nothing inherits or has built in, such as ``id``.

    Of what is built in (``length``, ``constructor``, the elements of an array or a text) nothing is known
    here: only a dict has members.

    Raises:
        JavaScriptTypeError: the value is null or undefined.
    """
    if isinstance(value, dict):
        return value.get(key, UNDEFINED)
    if value is None or value is UNDEFINED:
        name = "null" if value is None else "undefined"
        raise JavaScriptTypeError(f"Cannot read properties of {name} (reading '{key}')")
    return UNDEFINED


def keys(value: dict[str, Value]) -> list[str]:
    """``Object.keys(value)``: array indexes by their number, then the other keys as they were added."""
    # isdecimal is quick and lets too many through; is_index decides.
    if not any(map(str.isdecimal, value)):
        return list(value)
    indexes = sorted((key for key in value if is_index(key)), key=int)
    return [*indexes, *(key for key in value if not is_index(key))]


def is_index(key: str) -> bool:
    """Whether the key is an array index: 0 to 2^32 - 2 in decimal digits without leading zeros."""
    return key.isdecimal() and len(key) <= 10 and int(key) < 2**32 - 1 and key == str(int(key))
