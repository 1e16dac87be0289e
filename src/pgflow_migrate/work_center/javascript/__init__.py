"""The parts of JavaScript that decide what the Work Center program writes into a store.

A JavaScript value is, in Python: None (null), `UNDEFINED`, bool, float (every number is one; an int is
refused), str, list, dict with its members in JavaScript's order, and bytes (a Uint8Array).
A str may hold lone surrogates; a high one with its low one is always one character, U+10000 or above.

Nothing here recurses: depth is bounded by memory alone. The program itself gives up (RangeError) where its
stack ends: in Node.js 24 at some 3,000 levels in `stable_json` and `to_string`, at 4,400 in `stringify`.
"""

from pgflow_migrate.work_center.javascript.conversions import to_number, to_string
from pgflow_migrate.work_center.javascript.numbers import number_to_string
from pgflow_migrate.work_center.javascript.reading import parse, parse_or
from pgflow_migrate.work_center.javascript.text import sha256, utf8
from pgflow_migrate.work_center.javascript.values import (
    UNDEFINED,
    JavaScriptTypeError,
    Undefined,
    Value,
    get,
    is_object,
    truthy,
)
from pgflow_migrate.work_center.javascript.writing import stable_json, stringify

__all__ = [
    "UNDEFINED",
    "JavaScriptTypeError",
    "Undefined",
    "Value",
    "get",
    "is_object",
    "number_to_string",
    "parse",
    "parse_or",
    "sha256",
    "stable_json",
    "stringify",
    "to_number",
    "to_string",
    "truthy",
    "utf8",
]
