"""Keeping passwords out of what is printed, wherever somebody has put a connection string."""

from __future__ import annotations

import re

# What follows the user's name in a URL: up to the word's last @, because a raw password may have others.
# So much of the scheme is enough, and keeps a word without any from being read once for each of its letters.
_IN_URL = re.compile(r"""([A-Za-z][A-Za-z0-9+.-]{0,30}:/+[^\s/@:'"]*):[^\s]*@""")
_NAMED = re.compile(r"""\b((?:ssl)?password\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&'"),]+)""", re.IGNORECASE)
_HIDDEN = "***"


def masked(text: str) -> str:
    """``text`` with the passwords of connection strings in it as ``***``."""
    return _NAMED.sub(rf"\1{_HIDDEN}", _IN_URL.sub(rf"\1:{_HIDDEN}@", text))
