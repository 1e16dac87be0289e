"""Placeholders for payloads: of the same JSON shape and size class, so that the copy behaves as the original.

Strings become ``x``, their length in bytes rounded down to a power of two; the digits of a number become 1; a
boolean becomes false; null stays. Keys become letters, because keys are often data too (a map by e-mail
address). Of a message's body four values stay: they say which task it belongs to, and audits compare them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

Redaction = Callable[["str | None"], "str | None"]

_TOKEN = re.compile(
    r'("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|(-?[0-9][0-9.eE+-]*)|(true|false)|([{}\[\]])|[\s,]+|null'
)
_DIGIT = re.compile(r"[0-9]")

# What says which task a message belongs to, in the forms that can match one.
_ADDRESS: Mapping[str, re.Pattern[str]] = {
    "flow_slug": re.compile(r'"[^\s"\\]{1,128}"'),
    "step_slug": re.compile(r'"[^\s"\\]{1,128}"'),
    "run_id": re.compile(r'"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"'),
    "task_index": re.compile(r"-?[0-9]{1,10}(?:\.0+)?"),
}


def text(value: str | None) -> str | None:
    """A text as a placeholder; NULL stays."""
    return None if value is None else "x" * _size_class(len(value.encode()))


def digest(value: str | None) -> str | None:
    """A SHA-256 of a payload: one could try payloads until it fits."""
    return None if value is None else "\\x" + "00" * 32


def json(value: str | None) -> str | None:
    """A JSON document, as PostgreSQL prints it, as a placeholder; NULL stays."""
    return None if value is None else _document(value, {})


def message(value: str | None) -> str | None:
    """The same for a message's body, without what says which task it belongs to."""
    return None if value is None else _document(value, _ADDRESS)


def nothing(value: str | None) -> str | None:
    """For what nobody knows the meaning of."""
    return None


PGFLOW: Mapping[str, Redaction] = {
    "runs.input": json,
    "runs.output": json,
    "step_states.output": json,
    "step_states.error_message": text,
    "step_tasks.output": json,
    "step_tasks.error_message": text,
    "steps.required_input_pattern": json,
    "steps.forbidden_input_pattern": json,
    "worker_functions.pause_reason": text,
    "run_work.last_error": text,
    "task_claims.settlement_error": text,
    "task_claims.settlement_sha256": digest,
}
"""What of pgflow's tables is replaced; names of flows, steps, functions and queues are not."""

_QUEUE: Mapping[tuple[str, str], Redaction | None] = {
    ("message", "jsonb"): message,
    ("headers", "jsonb"): json,
    ("msg_id", "bigint"): None,
    ("read_ct", "integer"): None,
    ("enqueued_at", "timestamp with time zone"): None,
    ("last_read_at", "timestamp with time zone"): None,
    ("archived_at", "timestamp with time zone"): None,
    ("vt", "timestamp with time zone"): None,
}


def of_queue(name: str, type_: str) -> Redaction | None:
    """What replaces the values of a queue's column; None when they stay, :func:`nothing` for a stranger's."""
    return _QUEUE.get((name, type_), nothing)


def _size_class(length: int) -> int:
    """Rounded down, so that no limit on a size is exceeded that was kept before."""
    return 1 << (length.bit_length() - 1) if length else 0


def _document(document: str, address: Mapping[str, re.Pattern[str]]) -> str:
    """Token by token, because a document may be nested deeper than Python's stack."""
    parts: list[str] = []
    keys = [0]  # how many keys each open object or array has had
    keeps: re.Pattern[str] | None = None
    top = "{"
    for match in _TOKEN.finditer(document):
        string, colon, number, boolean, bracket = match.groups()
        if colon:
            keys[-1] += 1
            # Of the body itself, and not of something within it.
            keeps = address.get(string[1:-1]) if len(keys) == 2 and top == "{" else None
            parts.append((string if keeps else _key(keys[-1], string)) + ":")
            continue
        if bracket is not None:
            if bracket in "{[":
                if len(keys) == 1:
                    top = bracket
                keys.append(0)
            else:
                keys.pop()
            parts.append(bracket)
        elif string is not None:
            kept = keeps is not None and keeps.fullmatch(string)
            parts.append(string if kept else f'"{text(string[1:-1])}"')
        elif number is not None:
            kept = keeps is not None and keeps.fullmatch(number)
            parts.append(number if kept else _DIGIT.sub("1", number))
        elif boolean is not None:
            parts.append("false")
        else:
            parts.append(match[0])
            continue
        keeps = None
    return "".join(parts)


def _key(number: int, string: str) -> str:
    """The number in letters, filled up to the key's size class; unique within its object."""
    letters = ""
    while number:
        number, digit = divmod(number - 1, 26)
        letters = chr(ord("a") + digit) + letters
    # Not letters again: b and its filling must not be another number.
    return f'"{letters:-<{_size_class(len(string.encode()) - 2)}}"'
