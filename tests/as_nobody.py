"""Doing something as a user who owns nothing here, because root may read and write everything."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Within it this process is nobody, if it is root otherwise."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
