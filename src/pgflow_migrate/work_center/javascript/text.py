"""Texts of UTF-16 code units, as JavaScript has them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def utf8(text: str) -> bytes:
    """The text in UTF-8, U+FFFD in the place of each lone surrogate: so it reaches a file or a hash."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def sha256(text: str) -> str:
    """SHA-256 of the text in UTF-8, as 64 hexadecimal digits."""
    return hashlib.sha256(utf8(text)).hexdigest()


def in_order(texts: Iterable[str]) -> list[str]:
    """``texts.sort()``: by UTF-16 code units, so that U+10000 and above come before U+E000 to U+FFFF."""
    ordered = sorted(texts)
    if all(map(str.isascii, ordered)):
        return ordered
    return sorted(ordered, key=lambda text: text.encode("utf-16-be", "surrogatepass"))
