"""Durations as a person writes them for PostgreSQL, a number and a unit; and as one says them."""

from __future__ import annotations

import re
from datetime import timedelta

_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST = 2**31 - 1  # milliseconds; PostgreSQL's own limit for a timeout


def age(seconds: float) -> str:
    """A span as a person says it, in its largest unit: ``12 s``, ``3 min``; a negative one is ``0 s``."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def parse(text: str) -> timedelta:
    """Read a positive duration such as ``5s``, ``500ms`` or ``2min``.

    Zero is refused because to PostgreSQL it means "no limit", a number without a unit because it would be
    milliseconds to one reader and seconds to another.

    Raises:
        ValueError: it is none; the message is a sentence.
    """
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?([a-z]+)", text.strip())
    if not match or match[2] not in _SECONDS:
        raise ValueError(f"{text!r} is no duration: write a number and one of {', '.join(_SECONDS)}.")
    milliseconds = round(float(match[1]) * _SECONDS[match[2]] * 1000)
    if not 1 <= milliseconds <= _LONGEST:
        raise ValueError(f"{text!r} is out of range: from 1ms to 24d.")
    return timedelta(milliseconds=milliseconds)
