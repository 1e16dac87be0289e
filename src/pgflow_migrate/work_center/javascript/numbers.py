"""Numbers to texts and back, as JavaScript does it."""

from __future__ import annotations

import math
import re

# WhiteSpace and LineTerminator of the language; str.strip() would take more, and less.
_BLANKS = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_INFINITY = re.compile(r"[+-]?Infinity")
_OTHER_BASE = re.compile(r"0(?:[xX]([0-9a-fA-F]+)|[oO]([0-7]+)|[bB]([01]+))")
_BASES = (16, 8, 2)


def number_to_string(value: float) -> str:
    """``String(value)``: the fewest digits that read back as the value, an exponent from 1e21 and below 1e-6.

    Raises:
        TypeError: not a float.
    """
    # Python finds the same digits, but turns to exponents earlier, and has other words for what is no number.
    text = float.__repr__(value)
    if "e" not in text:
        if text.endswith(".0"):
            return text[:-2] if value else "0"
        return text if math.isfinite(value) else _word(value)

    sign = "-" if value < 0 else ""
    mantissa, exponent = text.lstrip("-").split("e")
    digits = mantissa.replace(".", "")
    point = int(exponent) + 1
    if 0 < point <= 21:
        return f"{sign}{digits.ljust(point, '0')}"
    if -6 < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}e{point - 1:+d}"


def _word(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def string_to_number(text: str) -> float:
    """``Number(text)``: 0 for a blank text, NaN for what is no number as a whole."""
    text = text.strip(_BLANKS)
    if not text:
        return 0.0
    if _DECIMAL.fullmatch(text) or _INFINITY.fullmatch(text):
        return float(text)
    if found := _OTHER_BASE.fullmatch(text):
        return next(
            _integer(digits, base) for digits, base in zip(found.groups(), _BASES, strict=True) if digits
        )
    return math.nan


def _integer(digits: str, base: int) -> float:
    try:
        return float(int(digits, base))
    except OverflowError:
        return math.inf
