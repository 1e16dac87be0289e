"""What the library returns stays as it was returned."""

from __future__ import annotations

import re
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
# What the steps of an upgrade count in.
ALLOWED = {("pgflow_migrate/work_center/revision.py", "Store", "")}
DATACLASS = re.compile(r"^ *@dataclass(.*)\n(?: *@.*\n)* *class (\w+)", re.MULTILINE)


def test_every_dataclass_is_frozen() -> None:
    found = [
        (path.relative_to(SOURCE).as_posix(), name, how)
        for path in SOURCE.rglob("*.py")
        for how, name in DATACLASS.findall(path.read_text(encoding="utf-8"))
    ]
    assert len(found) > 100
    assert {one for one in found if "frozen=True" not in one[2]} == ALLOWED
