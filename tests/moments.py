"""Times in PostgreSQL's JSON."""

from __future__ import annotations

import re
from datetime import datetime


def moment(text: str) -> datetime:
    """Read one. It has as many digits behind the point as it needs; Python 3.10 takes three or six alone."""
    return datetime.fromisoformat(re.sub(r"\.\d+", lambda digits: f"{digits[0]:0<7}", text))
